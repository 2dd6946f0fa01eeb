"""Our own RPCs, over real connections to each kind of server."""

import time

import pytest

from tests.http.serving import Client, b64, lease_of


class OwnClient(Client):
    """A client of django_mqlite.v1.QueueService."""

    def path(self, method):
        return f"{self.url}/django_mqlite.v1.QueueService/{method}"


@pytest.fixture
def own(client):
    return OwnClient(url=client.url, http=client.http)


def in_ms(seconds):
    return int((time.time() + seconds) * 1000)


@pytest.mark.rule("24.1")
def test_higher_priority_is_received_first(client, own):
    queue = client.queue()

    results = own.call(
        "Send",
        queue=queue,
        messages=[{"body": b64(b"low")}, {"body": b64(b"high"), "priority": 5}],
    )["results"]

    low, high = (result["seq_number"] for result in results)
    assert [m["seq_number"] for m in client.receive(queue, max_messages=2)] == [high, low]


@pytest.mark.rule("24.1")
def test_options_of_a_sent_message_are_stored(client, own):
    queue = client.queue()
    texts = {
        "message_id": "m",
        "correlation_id": "c",
        "reply_to": "r",
        "group_id": "g",
        "content_type": "text/plain",
        "subject": "s",
        "properties": {"a": "b"},
        "unique_key": "u",
        "max_delivery_count": 3,
    }

    (sent,) = own.call(
        "Send", queue=queue, messages=[{"body": b64(b"x"), "ttl_ms": 60_000, **texts}]
    )["results"]
    message = own.call("GetMessage", queue=queue, seq_number=sent["seq_number"])["message"]

    assert message.items() >= {"body": b64(b"x"), "state": "active", **texts}.items()
    assert message["expires_at_ms"] == message["visible_at_ms"] + 60_000


@pytest.mark.rule("24.1")
@pytest.mark.parametrize("option", ["delay_ms", "scheduled_enqueue_time_ms"])
def test_message_is_scheduled(client, own, option):
    queue = client.queue()
    value = 60_000 if option == "delay_ms" else in_ms(60)

    (sent,) = own.call("Send", queue=queue, messages=[{option: value}])["results"]

    assert client.receive(queue) == []
    assert client.numbers(queue, state="scheduled") == [sent["seq_number"]]


@pytest.mark.rule("24.1")
def test_unique_key_stores_one_unfinished_message(client, own):
    queue = client.queue()
    request = {"queue": queue, "messages": [{"unique_key": "report"}]}

    (first,) = own.call("Send", **request)["results"]
    (again,) = own.call("Send", **request)["results"]

    number = first["seq_number"]
    assert first == {"seq_number": number, "duplicate": False, "conflict": False}
    assert again == {"seq_number": number, "duplicate": True, "conflict": False}
    assert client.numbers(queue) == [number]


@pytest.mark.rule("24.1")
def test_conflict_among_other_messages_is_left_out(client, own):
    queue = client.queue(dedup_window_ms=60_000)
    own.call("Send", queue=queue, messages=[{"message_id": "1", "body": b64(b"a")}])
    conflict = {"message_id": "1", "body": b64(b"b")}

    results = own.call("Send", queue=queue, messages=[conflict, {"message_id": "2"}])["results"]

    assert results[0] == {"seq_number": 0, "duplicate": False, "conflict": True}
    assert results[1]["seq_number"] in client.numbers(queue)
    assert own.refused("Send", queue=queue, messages=[conflict]) == (409, "already_exists")


@pytest.mark.rule("24.1")
def test_topic_copies_messages_with_their_options(client, own):
    topic = client.new_name("t")
    queue = client.subscription(topic, 'subject == "wanted"')

    results = own.call(
        "Send",
        queue=topic,
        messages=[{"subject": "wanted", "priority": 7}, {"subject": "other"}],
    )["results"]

    copy, other = (result["seq_number"] for result in results)
    assert own.call("GetMessage", queue=queue, seq_number=copy)["message"]["priority"] == 7
    assert other == 0


@pytest.mark.rule("24.1")
@pytest.mark.parametrize(
    "message",
    [
        {"delay_ms": -1},
        {"ttl_ms": -1},
        {"max_delivery_count": -1},
        {"scheduled_enqueue_time_ms": 1},
        {"delay_ms": 1, "scheduled_enqueue_time_ms": 4_000_000_000_000},
        {"group_id": "g", "priority": 1},
        {"priority": 2**63},
        {"lock_token": "x"},
        {"ttl_ms": 2**62},
    ],
)
def test_wrong_option_refuses_every_message(client, own, message):
    queue = client.queue()

    assert own.refused("Send", queue=queue, messages=[{}, message]) == (400, "invalid_argument")
    assert client.numbers(queue) == []


@pytest.mark.rule("24.1")
def test_sending_to_an_unknown_queue_is_not_found(own):
    assert own.refused("Send", queue="nowhere", messages=[{}]) == (404, "not_found")


@pytest.mark.rule("24.2")
def test_batch_is_abandoned_with_delays_and_errors(client, own):
    queue = client.queue()
    client.send(queue, b"1", b"2", b"3")
    now, later, backoff = (lease_of(queue, m) for m in client.receive(queue, max_messages=3))
    for lease in (now, later, backoff):
        del lease["queue"]

    results = own.call(
        "AbandonBatch",
        queue=queue,
        messages=[
            now,
            {**later, "delay_ms": 60_000, "error": "printer on fire"},
            {**backoff, "backoff": True},
            {**now, "lock_token": "wrong"},
        ],
    )["results"]

    assert [result.get("ok") for result in results] == [True, True, True, False]
    states = [
        own.call("GetMessage", queue=queue, seq_number=lease["seq_number"])["message"]
        for lease in (now, later, backoff)
    ]
    assert [message["state"] for message in states] == ["active", "scheduled", "scheduled"]
    (failure,) = states[1]["failures"]
    assert failure["message"] == "printer on fire"
    assert failure["delivery"] == 1


@pytest.mark.rule("24.2")
def test_batch_is_rejected_with_reasons(client, own):
    queue = client.queue()
    client.send(queue, b"1", b"2")
    held = client.receive(queue, max_messages=2)
    first, second = (
        {"seq_number": message["seq_number"], "lock_token": message["lock_token"]}
        for message in held
    )
    request = {
        "queue": queue,
        "messages": [
            {**first, "dead_letter_reason": "Bad", "dead_letter_description": "no address"},
            second,
        ],
    }

    results = own.call("RejectBatch", **request)
    repeated = own.call("RejectBatch", **request)

    assert results == repeated
    assert all(result["ok"] for result in results["results"])
    dead = client.call("Peek", queue=queue, state="dead_lettered")["messages"]
    assert [m["dead_letter_reason"] for m in dead] == ["Bad", "AppRequested"]
    assert dead[0]["dead_letter_description"] == "no address"


@pytest.mark.rule("24.2")
@pytest.mark.parametrize("item", [{"delay_ms": -1}, {"delay_ms": 1, "backoff": True}])
def test_wrong_delay_abandons_nothing(client, own, item):
    queue = client.queue()
    client.send(queue, b"1")
    message = client.receive_one(queue)
    lease = {"seq_number": message["seq_number"], "lock_token": message["lock_token"]}

    refused = own.refused("AbandonBatch", queue=queue, messages=[lease, {**lease, **item}])

    assert refused == (400, "invalid_argument")
    assert client.stats(queue)["locked"] == 1


@pytest.mark.rule("24.2")
def test_extend_returns_the_new_deadline(client, own):
    queue = client.queue()
    client.send(queue)
    message = client.receive_one(queue)

    until = own.call("Extend", **lease_of(queue, message), lock_duration_ms=600_000)
    shorter = own.call("Extend", **lease_of(queue, message), lock_duration_ms=1)

    assert until["locked_until_ms"] > message["locked_until_ms"] + 500_000
    assert shorter == until
    (peeked,) = client.call("Peek", queue=queue)["messages"]
    assert peeked["locked_until_ms"] == until["locked_until_ms"]


@pytest.mark.rule("24.2")
def test_lost_lease_is_not_extended(client, own):
    queue = client.queue()
    client.send(queue)
    lease = lease_of(queue, client.receive_one(queue))
    client.call("Complete", **lease)

    assert own.refused("Extend", **lease) == (409, "lock_lost")
    assert own.refused("Extend", **{**lease, "queue": "nowhere"}) == (404, "not_found")
    assert own.refused("Extend", **lease, lock_duration_ms=-1) == (400, "invalid_argument")


@pytest.mark.rule("24.3")
@pytest.mark.parametrize("method", ["GetMessage", "Why", "Discard", "Activate"])
def test_message_of_another_queue_is_not_found(client, own, method):
    queue, other = client.queue(), client.queue()
    (number,) = client.send(other)

    assert own.refused(method, queue=queue, seq_number=number) == (404, "not_found")
    assert client.stats(other)["active"] == 1


@pytest.mark.rule("24.3")
def test_message_that_never_existed_is_not_found(client, own):
    queue = client.queue()
    (number,) = client.send(queue)

    assert own.refused("GetMessage", queue=queue, seq_number=number - 1) == (404, "not_found")


@pytest.mark.rule("24.3")
def test_get_message_shows_a_locked_message_without_its_token(client, own):
    queue = client.queue()
    (number,) = client.send(queue)
    client.receive_one(queue)

    message = own.call("GetMessage", queue=queue, seq_number=number)["message"]

    assert message["state"] == "locked"
    assert message["locked_by"].startswith("http:")
    assert "lock_token" not in message


@pytest.mark.rule("24.3")
def test_why_explains_a_waiting_message(client, own):
    queue = client.queue()
    (number,) = client.send(queue)
    own.call("Pause", queue=queue)

    why = own.call("Why", queue=queue, seq_number=number)

    assert why["seq_number"] == number
    assert why["code"] == "paused"
    assert why["text"] == f"its queue {queue} is paused"
    assert why["facts"]["state"] == "active"


@pytest.mark.rule("24.3")
def test_why_explains_a_completed_message(client, own):
    queue = client.queue()
    client.send(queue)
    message = client.receive_one(queue)
    client.settle("Complete", queue, message)

    why = own.call("Why", queue=queue, seq_number=message["seq_number"])

    assert why["code"] == "completed_and_gone"


@pytest.mark.rule("24.4")
def test_paused_queue_gives_nothing_until_resumed(client, own):
    queue = client.queue()
    client.send(queue)

    assert own.call("Pause", queue=queue) == {"changed": True}
    assert own.call("Pause", queue=queue) == {"changed": False}
    assert client.receive(queue) == []
    assert own.call("Resume", queue=queue) == {"changed": True}
    assert len(client.receive(queue)) == 1
    assert own.refused("Pause", queue="nowhere") == (404, "not_found")


@pytest.mark.rule("24.3")
def test_discard_makes_a_dead_letter_and_ends_the_lease(client, own):
    queue = client.queue()
    (number,) = client.send(queue)
    held = client.receive_one(queue)

    assert own.call("Discard", queue=queue, seq_number=number) == {"ok": True}

    (dead,) = client.call("Peek", queue=queue, state="dead_lettered")["messages"]
    assert dead["dead_letter_reason"] == "Discarded"
    assert client.refused("Complete", **lease_of(queue, held)) == (409, "lock_lost")
    assert own.refused("Discard", queue=queue, seq_number=number) == (404, "not_found")


@pytest.mark.rule("24.3")
def test_deferred_message_is_activated(client, own):
    queue = client.queue()
    (number,) = client.send(queue)
    client.settle("Defer", queue, client.receive_one(queue))

    assert own.call("Activate", queue=queue, seq_number=number) == {"ok": True}

    assert client.receive_one(queue)["seq_number"] == number
    assert own.refused("Activate", queue=queue, seq_number=number) == (404, "not_found")


@pytest.mark.rule("24.4")
def test_unsubscribe_deletes_the_subscription_and_its_queue(client, own):
    topic = client.new_name("t")
    name = client.subscription(topic)
    client.send(topic, b"1")

    assert own.call("Unsubscribe", name=name) == {"ok": True}

    assert client.refused("Stats", queue=name) == (404, "not_found")
    assert client.refused("Send", queue=topic, messages=[{}]) == (404, "not_found")
    assert own.refused("Unsubscribe", name=name) == (404, "not_found")
    assert own.refused("Unsubscribe", name=client.queue()) == (404, "not_found")


@pytest.mark.rule("24.4")
def test_queue_with_work_is_deleted_only_with_everything(client, own):
    queue = client.queue()
    client.send(queue)

    assert own.refused("DeleteQueue", name=queue) == (409, "failed_precondition")
    assert client.stats(queue)["active"] == 1
    assert own.call("DeleteQueue", name=queue, everything=True) == {"ok": True}
    assert client.refused("Stats", queue=queue) == (404, "not_found")
    assert own.refused("DeleteQueue", name=queue) == (404, "not_found")


@pytest.mark.rule("24.4")
def test_queue_of_a_subscription_is_not_deleted(client, own):
    name = client.subscription(client.new_name("t"))

    refused = own.refused("DeleteQueue", name=name, everything=True)

    assert refused == (409, "failed_precondition")


@pytest.mark.rule("24.1")
@pytest.mark.parametrize(
    "method",
    ["Send", "GetMessage", "Why", "Discard", "Activate", "Pause", "Resume"],
)
def test_empty_queue_name_is_refused(own, method):
    request = {"messages": [{}]} if method == "Send" else {}

    assert own.refused(method, **request) == (400, "invalid_argument")
