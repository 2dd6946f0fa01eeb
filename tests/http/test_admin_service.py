"""The RPCs of the AdminService, on each kind of server."""

import pytest

from django_mqlite.models import Queue
from tests.http.serving import b64, lease_of
from tests.support.workers import ALIAS

pytestmark = pytest.mark.rule("19.1")


def dead_letters(client, queue, count):
    """Send, receive and reject messages; return their numbers."""
    numbers = client.send(queue, *[b"dead"] * count)
    for message in client.receive(queue, max_messages=count):
        client.settle("Reject", queue, message)
    return numbers


def described(client, name):
    """Return the entry of ListQueues."""
    (entry,) = [q for q in client.call("ListQueues")["queues"] if q["name"] == name]
    return entry


# Queues


def test_queue_is_created_with_the_defaults(client):
    name = client.new_name()

    response = client.post("CreateQueue", {"name": name})

    assert response.content == b"{}\n"
    assert described(client, name) == {
        "name": name,
        "kind": "queue",
        "lock_duration_ms": 30_000,
        "max_delivery_count": 10,
        "default_ttl_ms": 0,
        "dedup_window_ms": 0,
    }


def test_queue_is_created_with_its_configuration(client, file):
    config = {
        "kind": "queue",
        "lock_duration_ms": 5_001,
        "max_delivery_count": 3,
        "default_ttl_ms": 7_000,
        "dead_letter_on_expire": False,
        "dedup_window_ms": 9_000,
        "ordering_mode": "strict_fifo",
        "dlq_max_age_ms": 60_000,
        "dlq_max_count": -7,
        "dlq_max_bytes": 0,
    }

    queue = Queue.objects.using(ALIAS).get(name=client.queue(**config))

    expected = {**config, "dlq_max_count": -1}
    assert {name: getattr(queue, name) for name in config} == expected


@pytest.mark.parametrize("value", [0, -5])
def test_duration_and_count_of_0_or_less_are_the_defaults(client, value):
    queue = client.queue(lock_duration_ms=value, max_delivery_count=value)

    assert described(client, queue)["lock_duration_ms"] == 30_000
    assert described(client, queue)["max_delivery_count"] == 10


def test_creating_again_overwrites_the_configuration_and_keeps_our_own_options(client, file):
    name = client.queue(lock_duration_ms=5_000, dlq_max_count=5)
    file.queue(name, backoff_base=7, retain_completed=60, max_in_flight=3, lock_duration=99)
    client.send(name)

    client.call("CreateQueue", name=name, config={"max_delivery_count": 4})

    queue = Queue.objects.using(ALIAS).get(name=name)
    assert (queue.lock_duration_ms, queue.max_delivery_count) == (30_000, 4)
    assert queue.dlq_max_count == 0
    assert (queue.backoff_base_ms, queue.retain_completed_ms) == (7_000, 60_000)
    assert queue.max_in_flight == 3
    assert client.stats(name)["active"] == 1


@pytest.mark.parametrize(
    "request_",
    [
        {"name": ""},
        {"name": "no spaces"},
        {"name": "q", "config": {"kind": "topic"}},
        {"name": "q", "config": {"ordering_mode": "lifo"}},
        {"name": "q", "config": {"lock_duration_ms": 2**62}},
        {"name": "q", "config": {"retain_completed": 1}},
    ],
    ids=str,
)
def test_invalid_queue_is_an_invalid_argument(client, request_):
    assert client.refused("CreateQueue", **request_) == (400, "invalid_argument")


def test_queue_with_messages_does_not_become_strict(client):
    queue = client.queue()
    client.send(queue)

    refused = client.refused("CreateQueue", name=queue, config={"ordering_mode": "strict_fifo"})

    assert refused == (400, "invalid_argument")


def test_name_of_another_kind_is_a_conflict(client):
    queue, topic = client.queue(), client.new_name("topic")
    subscription = client.subscription(topic)

    for request in (
        {"name": topic},
        {"name": subscription},
        {"name": queue, "config": {"kind": "subscription"}},
    ):
        assert client.refused("CreateQueue", **request) == (409, "name_conflict")
    client.call(
        "CreateQueue", name=subscription, config={"kind": "subscription", "lock_duration_ms": 5}
    )
    assert described(client, subscription)["lock_duration_ms"] == 5


def test_queues_are_listed_by_name(client):
    names = [client.new_name(prefix) for prefix in ("zz", "aa")]
    for name in names:
        client.call("CreateQueue", name=name)

    listed = [queue["name"] for queue in client.call("ListQueues")["queues"]]

    assert listed == sorted(listed)
    assert set(names) <= set(listed)


# Subscriptions


def test_subscription_is_listed_with_its_filter_as_it_was_written(client):
    topic = client.new_name("topic")
    plain = client.subscription(topic)
    filtered = client.subscription(topic, 'subject startsWith "a"')

    listed = client.call("ListSubscriptions")["subscriptions"]

    mine = [entry for entry in listed if entry["topic"] == topic]
    assert mine == [
        {"topic": topic, "name": plain},
        {"topic": topic, "name": filtered, "expr": 'subject startsWith "a"'},
    ]
    assert described(client, plain)["kind"] == "subscription"


def test_subscribing_again_replaces_the_filter_only(client):
    topic = client.new_name("topic")
    name = client.subscription(topic, 'subject == "a"', lock_duration_ms=5)

    client.call("Subscribe", topic=topic, name=name, filter={"expr": 'subject == "b"'})
    assert client.send(topic, b"", subject="a") == [0]
    client.call("Subscribe", topic=topic, name=name)

    assert client.send(topic, b"", subject="a") != [0]
    assert described(client, name)["lock_duration_ms"] == 5


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        ({"topic": "", "name": "s"}, (400, "invalid_argument")),
        ({"topic": "t", "name": ""}, (400, "invalid_argument")),
        ({"topic": "t", "name": "s", "filter": {"expr": "subject =="}}, (400, "invalid_argument")),
        ({"topic": "t", "name": "s", "filter": {"expr": "nonsense"}}, (400, "invalid_argument")),
        ({"topic": "t", "name": "s", "filter": {"expr": "subject"}}, (400, "invalid_argument")),
        ({"topic": "same", "name": "same"}, (409, "name_conflict")),
    ],
    ids=str,
)
def test_invalid_subscription_is_refused(client, request_, error):
    assert client.refused("Subscribe", **request_) == error


def test_names_of_topics_queues_and_subscriptions_conflict(client):
    queue, topic = client.queue(), client.new_name("topic")
    subscription = client.subscription(topic)
    other = client.new_name("topic")

    for topic_name, name in (
        (queue, "new"),
        (subscription, "new"),
        (other, queue),
        (other, topic),
        (other, subscription),
    ):
        assert client.refused("Subscribe", topic=topic_name, name=name) == (409, "name_conflict")


# Filters


@pytest.mark.parametrize(
    ("expr", "message", "answer"),
    [
        ("", None, {"valid": True, "ran": False, "matched": False}),
        ("", {}, {"valid": True, "ran": True, "matched": True}),
        ('subject == "a"', None, {"valid": True, "ran": False, "matched": False}),
        ('subject == "a"', {"subject": "a"}, {"valid": True, "ran": True, "matched": True}),
        ('subject == "a"', {"subject": "b"}, {"valid": True, "ran": True, "matched": False}),
        ('properties["k"] == ""', {}, {"valid": True, "ran": True, "matched": True}),
        ("body_size > 1", {"body": b64(b"ab")}, {"valid": True, "ran": True, "matched": True}),
        (
            "visible_at - enqueued_at >= seconds(5)",
            {"enqueued_at_ms": 1_000, "visible_at_ms": 6_000},
            {"valid": True, "ran": True, "matched": True},
        ),
    ],
    ids=str,
)
def test_filter_is_tried_without_a_queue(client, expr, message, answer):
    request = {"expr": expr} | ({} if message is None else {"message": message})

    assert client.call("TestFilter", **request) == answer


@pytest.mark.parametrize("expr", ["subject ==", "nonsense", "subject", "subject ^ 2"])
def test_wrong_filter_is_an_answer_with_an_error(client, expr):
    answer = client.call("TestFilter", expr=expr, message={})

    assert answer.pop("error")
    assert answer == {"valid": False, "ran": False, "matched": False}


# Dead letters


def test_redrive_in_place_keeps_the_numbers_and_starts_over(client):
    queue = client.queue()
    numbers = dead_letters(client, queue, 3)

    assert client.post("Redrive", {"queue": queue}).content == b'{"moved":3}\n'

    assert client.numbers(queue, state="active") == numbers
    assert client.receive_one(queue)["delivery_count"] == 1
    assert client.call("Redrive", queue=queue) == {"moved": 0}


def test_redrive_moves_at_most_max_into_the_target(client):
    queue, target = client.queue(), client.queue()
    dead_letters(client, queue, 3)

    assert client.call("Redrive", queue=queue, target=target, max=2) == {"moved": 2}

    assert client.stats(queue)["dead_lettered"] == 1
    assert client.stats(target)["active"] == 2


def test_redrive_with_a_rate_spreads_the_messages(client):
    queue = client.queue()
    dead_letters(client, queue, 3)

    assert client.call("Redrive", queue=queue, rate_per_sec=1) == {"moved": 3}

    stats = client.stats(queue)
    assert stats["active"] + stats["scheduled"] == 3
    assert stats["scheduled"] >= 1


def test_only_dead_letters_that_are_old_enough_are_chosen(client):
    queue = client.queue()
    dead_letters(client, queue, 1)

    assert client.call("Redrive", queue=queue, older_than_ms=3_600_000) == {"moved": 0}
    assert client.call("Purge", queue=queue, older_than_ms=3_600_000) == {"purged": 0}


def test_purge_deletes_some_or_all(client):
    queue = client.queue()
    dead_letters(client, queue, 3)

    assert client.call("Purge", queue=queue, max=1) == {"purged": 1}
    assert client.call("Purge", queue=queue) == {"purged": 2}
    assert client.stats(queue)["total"] == 0


@pytest.mark.parametrize(
    ("method", "request_", "error"),
    [
        ("Redrive", {"queue": "no-such"}, (404, "not_found")),
        ("Redrive", {"queue": ""}, (400, "invalid_argument")),
        ("Redrive", {"max": -1}, (400, "invalid_argument")),
        ("Redrive", {"older_than_ms": -1}, (400, "invalid_argument")),
        ("Redrive", {"rate_per_sec": -1}, (400, "invalid_argument")),
        ("Redrive", {"target": "no-such"}, (404, "not_found")),
        ("Purge", {"queue": "no-such"}, (404, "not_found")),
        ("Purge", {"max": -1}, (400, "invalid_argument")),
        ("Purge", {"older_than_ms": -1}, (400, "invalid_argument")),
    ],
    ids=str,
)
def test_invalid_redrive_or_purge_is_refused(client, method, request_, error):
    assert client.refused(method, **{"queue": client.queue(), **request_}) == error


def test_redrive_into_a_group_queue_needs_groups(client):
    queue, target = client.queue(), client.queue(ordering_mode="group_fifo")
    dead_letters(client, queue, 1)

    refused = client.refused("Redrive", queue=queue, target=target)

    assert refused == (400, "group_required")
    assert client.stats(queue)["dead_lettered"] == 1


def test_redriven_message_does_not_revive_its_lease(client):
    queue = client.queue()
    client.send(queue)
    received = client.receive_one(queue)
    client.settle("Reject", queue, received)
    client.call("Redrive", queue=queue)

    assert client.refused("Complete", **lease_of(queue, received)) == (409, "lock_lost")


def test_status_describes_the_broker(client, served_file):
    status = client.call("Status")

    assert status["backend"] == "local file"
    assert (status["remote"], status["auth"]) == (False, True)
    assert status["location"] == str(served_file)
    assert status["ping_ms"] >= 0
    assert status["db_size_bytes"] > 0
    assert status["queues"] >= status["subscriptions"]
    assert set(status) == {
        *("version", "backend", "remote", "location", "schema_version", "ping_ms"),
        *("db_size_bytes", "queues", "subscriptions", "uptime_ms", "auth"),
    }
