"""The RPCs of the QueueService, on each kind of server."""

import time

import pytest

from django_mqlite.models import Message
from tests.http.serving import b64, lease_of
from tests.support.workers import ALIAS

pytestmark = pytest.mark.rule("19.1")

LATER = 4_000_000_000_000
"""A time in the year 2096, in epoch milliseconds."""


def dead_letter(client, queue, **reasons):
    """Send, receive and reject a message; return its number."""
    (number,) = client.send(queue, b"dead")
    client.settle("Reject", queue, client.receive_one(queue), **reasons)
    return number


# Send and Schedule


def test_send_returns_ascending_numbers_and_receive_the_content(client):
    queue = client.queue()
    content = {
        "message_id": "m-1",
        "correlation_id": "c-1",
        "reply_to": "replies",
        "group_id": "g-1",
        "content_type": "text/plain",
        "subject": "orders.new",
        "properties": {"k": "v", "empty": ""},
    }

    numbers = client.send(queue, b"\x00\xff", b"second", **content)
    (received,) = client.receive(queue, max_messages=5)  # one message of the group

    assert numbers == sorted(set(numbers))
    assert {name: received[name] for name in content} == content
    assert received["body"] == b64(b"\x00\xff")
    assert received["seq_number"] == numbers[0]
    assert received["delivery_count"] == 1
    assert abs(received["enqueued_at_ms"] - time.time() * 1000) < 60_000
    assert received["locked_until_ms"] == pytest.approx(
        received["enqueued_at_ms"] + 30_000, abs=20_000
    )
    assert received["lock_token"]


def test_absent_fields_are_left_out(client):
    queue = client.queue()
    client.send(queue, b"")

    received = client.receive_one(queue)

    assert set(received) == {
        *("seq_number", "enqueued_at_ms", "delivery_count", "locked_until_ms", "lock_token"),
    }


def test_send_without_messages_answers_null_for_any_queue(client):
    response = client.post("Send", {"queue": "no-such-queue", "messages": []})

    assert response.content == b'{"seq_numbers":null}\n'
    assert client.call("Send") == {"seq_numbers": None}


@pytest.mark.parametrize("method", ["Send", "Schedule"])
def test_send_to_an_unknown_queue_is_not_found(client, method):
    assert client.refused(method, queue="no-such", messages=[{}]) == (404, "not_found")
    assert client.refused(method, queue="", messages=[{}]) == (400, "invalid_argument")


@pytest.mark.parametrize("method", ["Send", "Schedule"])
def test_message_with_a_time_is_scheduled(client, method):
    queue = client.queue()

    client.call(method, queue=queue, messages=[{}], scheduled_enqueue_time_ms=LATER, ttl_ms=1000)

    (peeked,) = client.call("Peek", queue=queue)["messages"]
    assert (peeked["state"], peeked["visible_at_ms"]) == ("scheduled", LATER)
    assert peeked["expires_at_ms"] == LATER + 1000


def test_schedule_without_a_time_sends(client):
    queue = client.queue()

    client.call("Schedule", queue=queue, messages=[{}])

    assert client.stats(queue)["active"] == 1


@pytest.mark.parametrize("at", [-1, 1, 1_000_000_000_000, 2**62])
def test_time_that_is_not_in_the_future_is_refused(client, at):
    queue = client.queue()

    refused = client.refused("Send", queue=queue, messages=[{}], scheduled_enqueue_time_ms=at)

    assert refused == (400, "invalid_argument")
    assert client.stats(queue)["total"] == 0


@pytest.mark.parametrize("ttl", [0, -5])
def test_ttl_of_0_or_less_means_none(client, ttl):
    queue = client.queue()

    client.call("Send", queue=queue, messages=[{}], ttl_ms=ttl)

    (peeked,) = client.call("Peek", queue=queue)["messages"]
    assert "expires_at_ms" not in peeked


def test_ttl_of_the_queue_is_the_default_and_the_ceiling(client):
    queue = client.queue(default_ttl_ms=60_000)

    client.call("Send", queue=queue, messages=[{}])
    client.call("Send", queue=queue, messages=[{}], ttl_ms=90_000)
    client.call("Send", queue=queue, messages=[{}], ttl_ms=1_000)

    peeked = client.call("Peek", queue=queue)["messages"]
    assert [m["expires_at_ms"] - m["visible_at_ms"] for m in peeked] == [60_000, 60_000, 1_000]


def test_duplicate_gets_the_number_of_the_original(client):
    queue = client.queue(dedup_window_ms=60_000)

    (first,) = client.send(queue, b"a", message_id="m")

    assert client.send(queue, b"a", message_id="m") == [first]
    assert client.send(queue, b"a", b"b", message_id="x")[1] == 0
    assert client.stats(queue)["total"] == 2


def test_equal_bodies_without_an_id_are_duplicates(client):
    queue = client.queue(dedup_window_ms=60_000)

    assert client.send(queue, b"a") == client.send(queue, b"a")


def test_conflict_of_a_single_message_already_exists(client):
    queue = client.queue(dedup_window_ms=60_000)
    client.send(queue, b"a", message_id="m")
    message = {"body": b64(b"b"), "message_id": "m"}

    for method in ("Send", "Schedule"):
        refused = client.refused(method, queue=queue, messages=[message])
        assert refused == (409, "already_exists")


def test_message_without_a_group_rolls_back_the_batch(client):
    queue = client.queue(ordering_mode="group_fifo")
    messages = [{"group_id": "g"}, {}]

    assert client.refused("Send", queue=queue, messages=messages) == (400, "group_required")
    assert client.stats(queue)["total"] == 0


# Topics


def test_topic_copies_into_every_subscription_that_matches(client):
    topic = client.new_name("topic")
    first = client.subscription(topic)
    second = client.subscription(topic, 'subject == "b"')

    numbers = client.call(
        "Send",
        queue=topic,
        messages=[{"subject": "a", "message_id": "m"}, {"subject": "b"}],
    )["seq_numbers"]

    assert client.numbers(first)[0] == numbers[0]
    assert client.numbers(second) == [numbers[1]]
    (copy, _) = client.call("Peek", queue=first)["messages"]
    assert copy["message_id"] == "m"
    assert "message_id" not in client.call("Peek", queue=second)["messages"][0]


def test_message_that_no_filter_matches_gets_0(client):
    topic = client.new_name("topic")
    client.subscription(topic, 'subject == "b"')

    assert client.send(topic, b"x", subject="a") == [0]
    assert client.send(topic, b"x", b"y", subject="a") == [0, 0]


def test_conflict_in_one_subscription_skips_only_that_copy(client):
    topic = client.new_name("topic")
    windowed = client.subscription(topic, dedup_window_ms=60_000)
    plain = client.subscription(topic)
    client.send(topic, b"a", message_id="m")

    (number,) = client.send(topic, b"b", message_id="m")

    assert client.numbers(plain)[1:] == [number]
    assert len(client.numbers(windowed)) == 1


def test_conflict_in_every_subscription_already_exists(client):
    topic = client.new_name("topic")
    client.subscription(topic, dedup_window_ms=60_000)
    client.send(topic, b"a", message_id="m")
    conflict = {"body": b64(b"b"), "message_id": "m"}

    assert client.refused("Send", queue=topic, messages=[conflict]) == (409, "already_exists")
    numbers = client.call("Send", queue=topic, messages=[conflict, {}])["seq_numbers"]
    assert numbers[0] == 0
    assert numbers[1] > 0


def test_topic_cannot_be_received_from(client):
    topic = client.new_name("topic")
    client.subscription(topic)

    assert client.refused("Receive", queue=topic) == (404, "not_found")


# Receive


@pytest.mark.parametrize(("limit", "count"), [(0, 1), (-3, 1), (2, 2), (1000, 256)])
def test_number_of_messages_is_clamped(client, limit, count):
    queue = client.queue()
    client.send(queue, *[b"x"] * 257)

    assert len(client.receive(queue, max_messages=limit)) == count


def test_receive_from_an_unknown_queue_is_not_found(client):
    assert client.refused("Receive", queue="no-such") == (404, "not_found")
    assert client.refused("Receive", queue="") == (400, "invalid_argument")


def test_empty_queue_answers_an_empty_array(client):
    response = client.post("Receive", {"queue": client.queue()})

    assert response.content == b'{"messages":[]}\n'


@pytest.mark.parametrize("mode", [0, 2, -1])
def test_any_other_mode_is_a_lease(client, mode):
    queue = client.queue()
    client.send(queue)

    received = client.receive_one(queue, receive_mode=mode)

    assert client.settle("Complete", queue, received) == {"ok": True}


def test_receive_and_delete_leaves_nothing(client):
    queue = client.queue()
    client.send(queue, b"x")

    received = client.receive_one(queue, receive_mode=1)

    assert "lock_token" not in received
    assert received["locked_until_ms"] > received["enqueued_at_ms"]
    assert received["delivery_count"] == 1
    assert client.stats(queue)["total"] == 0


def test_receive_and_delete_returns_a_group_in_order(client):
    queue = client.queue(ordering_mode="group_fifo")
    numbers = client.send(queue, b"a", b"b", b"c", group_id="g")

    received = client.receive(queue, receive_mode=1, max_messages=9)

    assert [message["seq_number"] for message in received] == numbers


def test_leases_are_one_for_each_group(client):
    queue = client.queue()
    first, _ = client.send(queue, b"a", b"b", group_id="g")
    (other,) = client.send(queue, b"c", group_id="h")

    received = client.receive(queue, max_messages=9)

    assert [message["seq_number"] for message in received] == [first, other]


@pytest.mark.parametrize("mode", [0, 1])
def test_repeated_attempt_gets_the_same_answer(client, mode):
    queue = client.queue()
    client.send(queue, b"a", b"b")
    request = {"receive_mode": mode, "receive_attempt_id": "attempt"}

    first = client.receive(queue, **request)
    again = client.receive(queue, **request)

    assert len(first) == 1
    assert [{**m, "locked_until_ms": 0} for m in again] == [
        {**m, "locked_until_ms": 0} for m in first
    ]
    assert client.receive(queue, receive_attempt_id="another")[0]["body"] == b64(b"b")


def test_empty_answer_of_an_attempt_is_not_recorded(client):
    queue = client.queue()
    assert client.receive(queue, receive_attempt_id="a") == []

    client.send(queue)

    assert len(client.receive(queue, receive_attempt_id="a")) == 1


@pytest.mark.parametrize("mode", [0, 1])
def test_answer_stops_after_32_mib_of_bodies(client, mode):
    queue = client.queue()
    for _ in range(2):
        client.send(queue, *[b"x" * 2**20] * 20)

    received = client.receive(queue, max_messages=256, receive_mode=mode)

    assert len(received) == 33
    assert len(client.receive(queue, max_messages=256, receive_mode=mode)) == 7


# Settling


def test_settled_message_cannot_be_settled_in_another_way(client):
    queue = client.queue()
    client.send(queue)
    received = client.receive_one(queue)
    client.settle("Complete", queue, received)

    for method in ("Abandon", "Reject", "Defer", "Renew"):
        assert client.refused(method, **lease_of(queue, received)) == (409, "lock_lost")


@pytest.mark.parametrize(
    ("method", "arguments"),
    [
        ("Complete", {}),
        ("Abandon", {"delay_ms": 5_000}),
        ("Reject", {"dead_letter_reason": "r", "dead_letter_description": "d"}),
        ("Defer", {}),
    ],
)
def test_repeated_settle_succeeds_only_with_the_same_arguments(client, method, arguments):
    queue = client.queue()
    client.send(queue)
    received = client.receive_one(queue)

    first = client.settle(method, queue, received, **arguments)
    again = client.settle(method, queue, received, **arguments)

    assert first == again == {"ok": True}
    if arguments:
        assert client.refused(method, **lease_of(queue, received)) == (409, "lock_lost")


@pytest.mark.parametrize("method", ["Complete", "Abandon", "Reject", "Defer", "Renew"])
@pytest.mark.parametrize(
    "change",
    [{"lock_token": ""}, {"lock_token": "wrong"}, {"seq_number": 0}, {"seq_number": 2**62}],
    ids=str,
)
def test_other_lease_is_lost(client, method, change):
    queue = client.queue()
    client.send(queue)
    received = client.receive_one(queue)

    refused = client.refused(method, **{**lease_of(queue, received), **change})

    assert refused == (409, "lock_lost")
    assert client.stats(queue)["locked"] == 1


@pytest.mark.parametrize("method", ["Complete", "Abandon", "Reject", "Defer"])
def test_settle_is_fenced_by_the_queue_and_does_not_check_it(client, method):
    queue, other = client.queue(), client.queue()
    client.send(queue)
    received = client.receive_one(queue)

    for name in (other, "no-such", ""):
        assert client.refused(method, **lease_of(name, received)) == (409, "lock_lost")


def test_renew_checks_the_queue(client):
    queue, other = client.queue(), client.queue()
    client.send(queue)
    received = client.receive_one(queue)

    assert client.refused("Renew", **lease_of(other, received)) == (409, "lock_lost")
    assert client.refused("Renew", **lease_of("no-such", received)) == (404, "not_found")


def test_settles_ignore_the_fields_of_the_others(client):
    queue = client.queue()
    client.send(queue)
    received = client.receive_one(queue)

    settled = client.settle(
        "Complete", queue, received, delay_ms=5, dead_letter_reason="x", dead_letter_description="y"
    )

    assert settled == {"ok": True}


@pytest.mark.parametrize(
    ("delay", "state"), [(0, "active"), (-5, "active"), (3_600_000, "scheduled")]
)
def test_abandoned_message_comes_back_at_once_or_later(client, delay, state):
    queue = client.queue()
    client.send(queue)

    client.settle("Abandon", queue, client.receive_one(queue), delay_ms=delay)

    (peeked,) = client.call("Peek", queue=queue)["messages"]
    assert (peeked["state"], peeked["delivery_count"]) == (state, 1)


def test_message_abandoned_at_its_limit_is_a_dead_letter(client):
    queue = client.queue(max_delivery_count=1)
    client.send(queue)

    client.settle("Abandon", queue, client.receive_one(queue))

    (peeked,) = client.call("Peek", queue=queue, state="dead_lettered")["messages"]
    assert peeked["dead_letter_reason"] == "MaxDeliveryCountExceeded"


def test_delay_over_a_hundred_years_is_refused(client):
    queue = client.queue()
    client.send(queue)
    lease = lease_of(queue, client.receive_one(queue))

    assert client.refused("Abandon", **lease, delay_ms=2**62) == (400, "invalid_argument")


@pytest.mark.parametrize(
    ("given", "reason", "description"),
    [
        ({}, "AppRequested", None),
        ({"dead_letter_reason": "Bad", "dead_letter_description": "worse"}, "Bad", "worse"),
    ],
)
def test_rejected_message_has_its_reason(client, given, reason, description):
    queue = client.queue()

    dead_letter(client, queue, **given)

    (peeked,) = client.call("Peek", queue=queue)["messages"]
    assert peeked["state"] == "dead_lettered"
    assert peeked["dead_letter_reason"] == reason
    assert peeked.get("dead_letter_description") == description


def test_deferred_messages_are_received_in_the_order_asked_for(client):
    queue = client.queue()
    first, second, third = client.send(queue, b"a", b"b", b"c")
    for message in client.receive(queue, max_messages=3):
        client.settle("Defer", queue, message)
    client.send(queue, b"d")

    numbers = [third, 999_999, first, third]
    response = client.call("ReceiveDeferred", queue=queue, seq_numbers=numbers)

    received = response["messages"]
    assert [message["seq_number"] for message in received] == [third, first]
    assert [message["delivery_count"] for message in received] == [2, 2]
    assert client.settle("Complete", queue, received[0]) == {"ok": True}
    assert client.numbers(queue, state="deferred") == [second]
    assert client.call("ReceiveDeferred", queue=queue) == {"messages": []}


def test_renew_extends_the_lease_by_the_queue_s_duration(client):
    queue = client.queue(lock_duration_ms=60_000)
    client.send(queue)
    received = client.receive_one(queue)

    response = client.post("Renew", lease_of(queue, received))

    assert response.content == b'{"ok":true}\n'
    (peeked,) = client.call("Peek", queue=queue)["messages"]
    assert peeked["locked_until_ms"] >= received["locked_until_ms"]
    assert "lock_token" not in peeked


def test_expired_lease_is_lost_at_its_deadline(client, file):
    queue = client.queue(lock_duration_ms=600_000)
    client.send(queue)
    received = client.receive_one(queue)
    file.expire_leases()

    for method in ("Complete", "Renew"):
        assert client.refused(method, **lease_of(queue, received)) == (409, "lock_lost")


def test_complete_batch_answers_for_each_message(client):
    queue = client.queue()
    client.send(queue, b"a", b"b")
    first, second = client.receive(queue, max_messages=2)
    client.settle("Complete", queue, first)
    items = [
        {name: message[name] for name in ("seq_number", "lock_token")}
        for message in (second, first, {"seq_number": 5, "lock_token": "wrong"}, second)
    ]

    response = client.post("CompleteBatch", {"queue": queue, "messages": items})

    assert response.json() == {
        "results": [
            {"seq_number": second["seq_number"], "ok": True},
            {"seq_number": first["seq_number"], "ok": True},
            {"seq_number": 5, "ok": False},
            {"seq_number": second["seq_number"], "ok": True},
        ]
    }
    assert client.stats(queue)["total"] == 0
    assert client.call("CompleteBatch", queue=queue) == {"results": []}


def test_renew_batch_tells_the_new_deadlines(client):
    queue = client.queue()
    client.send(queue)
    received = client.receive_one(queue)
    held = {name: received[name] for name in ("seq_number", "lock_token")}

    response = client.call(
        "RenewBatch", queue=queue, messages=[held, {"seq_number": 1, "lock_token": "x"}]
    )

    renewed, lost = response["results"]
    assert renewed["ok"]
    assert renewed["locked_until_ms"] >= received["locked_until_ms"]
    assert lost == {"seq_number": 1, "ok": False}


def test_renew_batch_takes_512_leases(client):
    queue = client.queue()
    item = {"seq_number": 1, "lock_token": "x"}

    results = client.call("RenewBatch", queue=queue, messages=[item] * 512)["results"]
    refused = client.refused("RenewBatch", queue=queue, messages=[item] * 513)

    assert len(results) == 512
    assert refused == (400, "invalid_argument")


# Cancel, Peek and Stats


def test_cancel_deletes_a_scheduled_message_of_its_queue(client):
    queue, other = client.queue(), client.queue()
    (number,) = client.call("Send", queue=queue, messages=[{}], scheduled_enqueue_time_ms=LATER)[
        "seq_numbers"
    ]

    assert client.refused("Cancel", queue=other, seq_number=number) == (404, "not_found")
    assert client.call("Cancel", queue=queue, seq_number=number) == {"ok": True}
    assert client.refused("Cancel", queue=queue, seq_number=number) == (404, "not_found")


def test_message_that_was_delivered_cannot_be_cancelled(client):
    queue = client.queue()
    (number,) = client.send(queue)
    client.settle("Abandon", queue, client.receive_one(queue), delay_ms=60_000)

    assert client.refused("Cancel", queue=queue, seq_number=number) == (404, "not_found")


def test_peek_lists_messages_of_every_state_by_number(client):
    queue, other = client.queue(), client.queue()
    numbers = client.send(queue, b"a", b"b", b"c")
    client.send(other)
    locked = client.receive_one(queue)
    client.settle("Reject", queue, client.receive_one(queue))

    peeked = client.call("Peek", queue=queue)["messages"]

    assert [message["seq_number"] for message in peeked] == numbers
    assert [message["state"] for message in peeked] == ["locked", "dead_lettered", "active"]
    assert peeked[0]["locked_until_ms"] == locked["locked_until_ms"]
    assert not any("lock_token" in message for message in peeked)
    assert client.numbers(queue, from_seq=numbers[1]) == numbers[1:]
    assert client.numbers(queue, max=2) == numbers[:2]
    assert client.numbers(queue, state="active") == [numbers[2]]


@pytest.mark.parametrize("request_", [{"queue": "no-such"}, {"state": "nonsense"}])
def test_peek_of_an_unknown_queue_or_state_is_empty(client, request_):
    response = client.post("Peek", {"queue": client.queue(), **request_})

    assert response.content == b'{"messages":[]}\n'


@pytest.mark.parametrize(("limit", "count"), [(0, 32), (-1, 32), (5000, 1000)])
def test_number_of_peeked_messages_is_clamped(client, limit, count):
    queue = client.queue()
    client.send(queue, *[b""] * 1001)

    assert len(client.numbers(queue, max=limit)) == count


def test_peek_stops_after_32_mib_of_bodies(client):
    queue = client.queue()
    for _ in range(2):
        client.send(queue, *[b"x" * 2**20] * 20)

    assert len(client.numbers(queue, max=1000)) == 33


def test_stats_count_by_state(client):
    queue = client.queue()
    client.send(queue, *[b""] * 5)
    client.call("Send", queue=queue, messages=[{}], scheduled_enqueue_time_ms=LATER)
    first, second, _ = client.receive(queue, max_messages=3)
    client.settle("Defer", queue, first)
    client.settle("Reject", queue, second)

    stats = client.stats(queue)

    age = stats.pop("oldest_message_age_ms")
    assert 0 <= age < 60_000
    assert stats == {
        "queue": queue,
        "active": 2,
        "locked": 1,
        "deferred": 1,
        "scheduled": 1,
        "dead_lettered": 1,
        "total": 6,
    }


def test_age_is_that_of_the_oldest_message_that_waits_or_is_locked(client, file):
    queue = client.queue()
    numbers = client.send(queue, b"a", b"b", b"c")
    ages = [5_000_000, 3_000_000, 1_000_000]
    with file.other_program() as other:
        for number, age in zip(numbers, ages, strict=True):
            other.execute(
                "UPDATE mqlite_messages SET enqueued_at = enqueued_at - ? WHERE id = ?",
                [age, number],
            )

    first = client.receive_one(queue)
    assert client.stats(queue)["oldest_message_age_ms"] == pytest.approx(5_000_000, abs=60_000)
    client.settle("Reject", queue, first)

    assert client.stats(queue)["oldest_message_age_ms"] == pytest.approx(3_000_000, abs=60_000)


def test_stats_of_an_empty_and_of_an_unknown_queue(client):
    assert client.stats(client.queue())["oldest_message_age_ms"] == 0
    assert client.refused("Stats", queue="no-such") == (404, "not_found")


# Limits that are stricter than mqlite's


@pytest.mark.parametrize(
    "fields",
    [{"subject": "x" * 1025}, {"message_id": "a\0b"}, {"properties": {"k": "x" * 70_000}}],
    ids=["long", "NUL", "large properties"],
)
def test_text_that_cannot_be_stored_is_an_invalid_argument(client, fields):
    queue = client.queue()

    assert client.refused("Send", queue=queue, messages=[fields]) == (400, "invalid_argument")


def test_lease_names_the_key_that_holds_it(client, file):
    queue = client.queue()
    (number,) = client.send(queue)
    client.receive_one(queue)

    assert Message.objects.using(ALIAS).get(pk=number).locked_by == "http:root"
