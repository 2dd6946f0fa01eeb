"""Requests that wait for messages."""

import asyncio
import json
import socket
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import connections

from django_mqlite.http import wire
from django_mqlite.http.asgi import MqliteBroker
from django_mqlite.http.broker import Broker
from django_mqlite.http.keys import Keyring
from django_mqlite.http.polls import Polls, Waiter
from django_mqlite.http.verbs import wait_seconds
from django_mqlite.http.writer import Writer
from tests.http.serving import lease_of
from tests.support.waiting import PATIENCE, wait_until

LONG = 20_000
"""Milliseconds that a request waits; the WSGI view waits a quarter of it."""


@pytest.fixture
def threads():
    with ThreadPoolExecutor(8) as pool:
        yield pool


def poll(client, queue, **request):
    """Receive until there are messages, as clients do."""
    return wait_until(lambda: client.receive(queue, wait_time_ms=LONG, **request), "a message")


@pytest.mark.rule("19.4")
def test_waiting_request_gets_a_message_that_a_client_sends(client, threads):
    queue = client.queue()
    waiting = threads.submit(poll, client, queue)

    (number,) = client.send(queue)

    assert [message["seq_number"] for message in waiting.result(PATIENCE)] == [number]


@pytest.mark.rule("19.4")
def test_waiting_request_gets_a_message_that_django_enqueues(client, threads, file):
    queue = client.queue()
    waiting = threads.submit(poll, client, queue)

    message = file.enqueue(queue, "x")

    assert [received["seq_number"] for received in waiting.result(PATIENCE)] == [message.pk]


@pytest.mark.rule("19.4")
def test_waiting_request_gets_the_next_message_of_a_group(client, threads):
    queue = client.queue(ordering_mode="group_fifo")
    _, second = client.send(queue, b"a", b"b", group_id="g")
    first = client.receive_one(queue)
    waiting = threads.submit(poll, client, queue)

    client.settle("Complete", queue, first)

    assert [message["seq_number"] for message in waiting.result(PATIENCE)] == [second]


@pytest.mark.rule("19.4")
def test_each_message_goes_to_one_of_many_waiting_requests(client, threads):
    queue = client.queue()
    waiting = [threads.submit(poll, client, queue) for _ in range(6)]

    numbers = client.send(queue, *[b"x"] * 6)

    received = [message["seq_number"] for w in waiting for message in w.result(PATIENCE)]
    assert sorted(received) == numbers


def test_request_that_waits_in_vain_gets_an_empty_answer(client):
    response = client.post("Receive", {"queue": client.queue(), "wait_time_ms": 50})

    assert (response.status_code, response.content) == (200, b'{"messages":[]}\n')


def test_unknown_queue_is_not_waited_for(client):
    assert client.refused("Receive", queue="no-such", wait_time_ms=LONG) == (404, "not_found")


@pytest.mark.parametrize(
    ("milliseconds", "seconds"), [(-1, 0), (0, 0), (1_500, 1.5), (20_001, 20), (2**62, 20)]
)
def test_wait_is_clamped(milliseconds, seconds):
    assert wait_seconds(wire.ReceiveRequest(wait_time_ms=milliseconds)) == seconds


@pytest.mark.rule("19.4")
@pytest.mark.parametrize("kind", ["runbroker", "asgi"])
def test_client_that_vanishes_while_waiting_claims_nothing(server_of, http, kind):
    from tests.http.serving import TOKEN, Client  # noqa: PLC0415 - the client is made here

    server = server_of(kind)
    client = Client(url=server.url, http=http)
    queue = client.queue()
    body = json.dumps({"queue": queue, "wait_time_ms": LONG}).encode()
    path = client.path("Receive").removeprefix(f"http://127.0.0.1:{server.port}")
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: {TOKEN}\r\n"
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        client.stats(queue)  # one more round trip, so that the request has arrived
    client.stats(queue)  # and one after it was closed

    (number,) = client.send(queue)

    received = client.receive_one(queue)
    assert (received["seq_number"], received["delivery_count"]) == (number, 1)
    assert client.settle("Complete", queue, received) == {"ok": True}
    assert client.refused("Defer", **lease_of(queue, received)) == (409, "lock_lost")


# The registry


class Wakes:
    """Count the wakes of a waiter."""

    def __init__(self, queue="jobs"):
        self.count = 0
        self.waiter = Waiter(queue, self._wake)

    def _wake(self):
        self.count += 1


@pytest.fixture
def polls(monkeypatch):
    """A registry without its thread."""
    polls = Polls("default")
    monkeypatch.setattr(polls, "_start", lambda: None)
    yield polls
    polls.close()


def added(polls, count, queue="jobs"):
    wakes = [Wakes(queue) for _ in range(count)]
    for wake in wakes:
        polls.add(wake.waiter)
    return wakes


def test_commit_wakes_one_request_and_its_success_two_more(polls):
    wakes = added(polls, 5)
    other = added(polls, 1, queue="other")

    polls.wake("jobs")
    assert [wake.count for wake in wakes] == [1, 0, 0, 0, 0]
    polls.wake_after_success("jobs")

    assert [wake.count for wake in wakes + other] == [1, 1, 1, 0, 0, 0]


def test_woken_request_that_ends_without_a_claim_wakes_another(polls):
    first, second = added(polls, 2)
    polls.wake("jobs")

    polls.remove(first.waiter)

    assert (first.count, second.count) == (1, 1)


def test_woken_request_that_claims_wakes_no_other(polls):
    first, second = added(polls, 2)
    polls.wake("jobs")

    assert first.waiter.take_wake()
    polls.remove(first.waiter)

    assert (first.count, second.count) == (1, 0)


def test_request_that_ends_before_it_is_woken_wakes_no_other(polls):
    first, second = added(polls, 2)

    polls.remove(first.waiter)

    assert (first.count, second.count) == (0, 0)


def test_closing_wakes_every_request_and_later_ones(polls):
    wakes = added(polls, 3)

    polls.close()
    (late,) = added(polls, 1)

    assert [wake.count for wake in [*wakes, late]] == [1, 1, 1, 1]


@pytest.mark.django_db(transaction=True)
def test_one_thread_watches_for_every_request(queue):
    from django_mqlite import enqueue  # noqa: PLC0415 - needs the apps

    woken = threading.Event()
    polls = Polls("default")
    try:
        polls.add(Waiter("jobs", woken.set))
        enqueue("jobs", None)

        assert woken.wait(PATIENCE)
    finally:
        polls.close()


@pytest.mark.django_db(transaction=True)
def test_number_of_claims_depends_on_the_messages_and_not_on_the_requests(queue, monkeypatch):
    """Forty requests wait twice for one message; each registers with two claims."""
    from django_mqlite import enqueue  # noqa: PLC0415 - needs the apps

    claims = []
    submit = Writer.submit

    def counting(writer, job):
        claims.append(job)
        submit(writer, job)

    monkeypatch.setattr(Writer, "submit", counting)
    broker = Broker(using="default", keyring=Keyring(using="default", is_open=True), cors="")
    app = MqliteBroker(broker=broker)

    async def run():
        requests = [asyncio.ensure_future(receive_from(app)) for _ in range(40)]
        await until(lambda: len(claims) == 80)
        await asyncio.to_thread(enqueue_and_close, enqueue)
        _, pending = await asyncio.wait(requests, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.to_thread(enqueue_and_close, enqueue)
        _, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
        app.end_polls()
        await asyncio.wait(pending)
        app.close()
        return sum(len(request.result()["messages"]) for request in requests)

    assert asyncio.run(run()) == 2
    assert len(claims) < 110  # 80, and about 5 for each message


def enqueue_and_close(enqueue):
    enqueue("jobs", None)
    connections.close_all()


async def until(condition):
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110 - other threads make it true
            await asyncio.sleep(0.01)


async def receive_from(app):
    """Send a Receive that waits to the application; return its answer."""
    body = json.dumps({"queue": "jobs", "wait_time_ms": LONG}).encode()
    path = "/mqlite.v1.QueueService/Receive"
    scope = {"type": "http", "method": "POST", "path": path, "headers": []}
    events = [{"type": "http.request", "body": body}]
    sent = []

    async def receive():
        if events:
            return events.pop()
        return await asyncio.Event().wait()

    async def send(event):
        sent.append(event)

    await app(scope, receive, send)
    return json.loads(sent[1]["body"])
