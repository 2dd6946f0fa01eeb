"""23 The Python client, against real brokers, also behind a proxy that loses answers."""

import logging
import subprocess
import sys
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread

import httpx
import pytest

from django_mqlite.client import (
    BrokerError,
    Client,
    LeaseLost,
    OutcomeUnknown,
    Outgoing,
    Reject,
    Retry,
    Unreachable,
)
from tests.http.serving import TOKEN
from tests.http.serving import Client as Wire
from tests.support.source import ROOT
from tests.support.waiting import PATIENCE, wait_until

pytestmark = pytest.mark.django_db


@pytest.fixture
def connect():
    """Return clients that are closed after the test."""
    clients = []

    def connect(url, key=TOKEN, **options):
        clients.append(Client(url, key, **options))
        return clients[-1]

    yield connect
    for client in clients:
        client.close()


@pytest.fixture
def wire(server_of, http):
    """The wire of runbroker, to create queues and look at them."""
    return Wire(url=server_of("runbroker").url, http=http)


@pytest.fixture
def broker(wire, connect):
    return connect(wire.url)


@pytest.fixture
def queue(wire):
    return wire.queue()


class Proxy(ThreadingHTTPServer):
    """A proxy that forwards each request and loses the answers that `lost` counts by method."""

    daemon_threads = True

    def __init__(self, target):
        super().__init__(("127.0.0.1", 0), ProxyHandler)
        self.target = target
        self.lost = Counter()
        self.seen = Counter()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, request, address):
        """A client that has gone is no error."""


class ProxyHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        method = self.path.rpartition("/")[2]
        body = self.rfile.read(int(self.headers["Content-Length"]))
        headers = {"Authorization": self.headers["Authorization"]}
        answer = httpx.post(
            self.server.target + self.path, content=body, headers=headers, timeout=PATIENCE
        )
        self.server.seen[method] += 1
        if self.server.lost[method] > 0:
            self.server.lost[method] -= 1
            self.close_connection = True
            return
        self.send_response(answer.status_code)
        self.send_header("Content-Length", str(len(answer.content)))
        self.end_headers()
        self.wfile.write(answer.content)

    def log_message(self, *arguments):
        """Log nothing."""


@pytest.fixture
def proxy(wire):
    proxy = Proxy(wire.url)
    Thread(target=proxy.serve_forever, daemon=True).start()
    yield proxy
    proxy.shutdown()
    proxy.server_close()


class Working:
    """A work loop in a thread."""

    def __init__(self, client, queue, handler, **options):
        self.stop = Event()
        self.error = None
        self._thread = Thread(target=self._run, args=(client, queue, handler), kwargs=options)
        self._thread.start()

    def _run(self, client, queue, handler, **options):
        try:
            client.work(queue, handler, stop=self.stop, **options)
        except Exception as error:  # noqa: BLE001 - returned to the test
            self.error = error

    def end(self):
        self.stop.set()
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()
        return self.error


@pytest.fixture
def work():
    """Start work loops, and end them after the test."""
    loops = []

    def work(*arguments, **options):
        loops.append(Working(*arguments, **options))
        return loops[-1]

    yield work
    for loop in loops:
        loop.end()


# 23.1


@pytest.mark.rule("23.1")
def test_message_is_sent_received_and_settled(server, http, connect):
    queue = Wire(url=server.url, http=http).queue()
    client = connect(server.url)

    id = client.send(
        queue,
        {"order": 17, "text": "é"},
        message_id="m",
        subject="placed",
        properties={"country": "de"},
        correlation_id="c",
        reply_to="r",
    )
    (message,) = client.receive(queue, wait=0)

    assert (message.id, message.data) == (id, {"order": 17, "text": "é"})
    assert (message.message_id, message.subject) == ("m", "placed")
    assert (message.correlation_id, message.reply_to) == ("c", "r")
    assert message.properties == {"country": "de"}
    assert (message.delivery_count, message.content_type) == (1, "application/json")
    assert 20_000 < message.lease_ms < 40_000
    assert message.lock_token not in repr(message)
    message.renew()
    message.complete()
    message.complete()  # a repeated request is safe
    assert client.stats(queue)["total"] == 0


@pytest.mark.rule("23.1")
def test_settles_end_the_delivery(broker, queue):
    broker.send_many(queue, [Outgoing(data=number) for number in range(4)])
    abandoned, rejected, deferred, lost = broker.receive(queue, limit=4, wait=0)

    abandoned.abandon(delay=3_600)
    rejected.reject("Never", "because")
    deferred.defer()
    lost.complete()
    with pytest.raises(LeaseLost):
        lost.abandon()

    counts = broker.stats(queue)
    assert (counts["scheduled"], counts["dead_lettered"], counts["deferred"]) == (1, 1, 1)


@pytest.mark.rule("23.1")
@pytest.mark.parametrize(
    ("data", "content_type"),
    [(b"\x00\xff", ""), ("text", ""), ([1, None], ""), ("<a/>", "text/xml")],
)
def test_data_arrives_as_it_was_sent(broker, queue, data, content_type):
    broker.send(queue, data, content_type=content_type)

    (message,) = broker.receive(queue, wait=0)

    assert message.data == data


@pytest.mark.rule("23.1")
def test_scheduled_message_waits_and_can_be_cancelled(broker, queue):
    id = broker.send(queue, 1, delay=3_600, ttl=60)

    assert broker.receive(queue, wait=0) == []
    assert broker.cancel(queue, id)
    assert not broker.cancel(queue, id)
    with pytest.raises(ValueError, match="either delay or visible_at"):
        broker.send(queue, 1, delay=1, visible_at=object())


@pytest.mark.rule("23.1")
def test_refusal_is_an_error_with_its_code(broker, wire, connect):
    with pytest.raises(BrokerError, match=r"\(not_found, 404\)") as refused:
        broker.send("missing", 1)
    with pytest.raises(BrokerError) as denied:
        connect(wire.url, "mqk_wrong").send("missing", 1)

    assert (refused.value.code, refused.value.status) == ("not_found", 404)
    assert denied.value.code == "unauthenticated"
    assert "mqk_wrong" not in str(denied.value)


@pytest.mark.rule("23.1")
@pytest.mark.parametrize("url", ["", "broker:6754", "mqlite://broker"])
def test_address_that_is_no_url_is_refused(url, monkeypatch):
    monkeypatch.delenv("MQLITE_ENDPOINT", raising=False)
    with pytest.raises(ValueError, match="Invalid address of a broker"):
        Client(url)


@pytest.mark.rule("23.1")
def test_address_and_key_are_read_from_the_environment(wire, queue, monkeypatch):
    monkeypatch.setenv("MQLITE_ENDPOINT", wire.url)
    monkeypatch.setenv("MQLITE_TOKEN", TOKEN)

    with Client() as client:
        assert client.send(queue, 1) > 0


# 23.2


@pytest.mark.rule("23.2")
def test_message_whose_answer_was_lost_is_received_again(proxy, connect, queue):
    client = connect(proxy.url)
    client.send(queue, "once")
    proxy.lost["Receive"] = 1

    (message,) = client.receive(queue, wait=0)

    assert proxy.seen["Receive"] == 2
    assert (message.data, message.delivery_count) == ("once", 1)
    message.complete()


@pytest.mark.rule("23.2")
@pytest.mark.parametrize("verb", ["complete", "abandon", "defer", "renew"])
def test_settle_whose_answer_was_lost_is_repeated(proxy, connect, queue, verb):
    client = connect(proxy.url)
    client.send(queue, 1)
    (message,) = client.receive(queue, wait=0)
    method = verb.capitalize()
    proxy.lost[method] = 2

    getattr(message, verb)()

    assert proxy.seen[method] == 3


@pytest.mark.rule("23.2")
def test_send_whose_answer_was_lost_is_repeated_only_with_a_message_id(proxy, connect, wire):
    queue = wire.queue(dedup_window_ms=600_000)
    client = connect(proxy.url)
    proxy.lost["Send"] = 1
    with pytest.raises(OutcomeUnknown):
        client.send(queue, 1)
    assert proxy.seen["Send"] == 1
    proxy.lost["Send"] = 1

    id = client.send(queue, 2, message_id="once")

    assert proxy.seen["Send"] == 3
    assert client.send(queue, 2, message_id="once") == id
    assert client.stats(queue)["total"] == 2


@pytest.mark.rule("23.2")
def test_broker_that_does_not_run_is_unreachable(connect):
    client = connect("http://127.0.0.1:9", retry_for=0.3)

    for call in (lambda: client.send("jobs", 1), lambda: client.receive("jobs")):
        with pytest.raises(Unreachable, match=r"http://127\.0\.0\.1:9 cannot be reached"):
            call()


# 23.3


@pytest.mark.rule("23.3")
def test_receive_waits_for_a_message(broker, queue):
    Thread(target=lambda: (time.sleep(0.2), broker.send(queue, "late"))).start()

    (message,) = broker.receive(queue, wait=PATIENCE)

    assert message.data == "late"


@pytest.mark.rule("23.3")
def test_work_settles_by_the_result_of_the_handler(broker, queue, work, caplog):
    seen = []

    def handle(message):
        seen.append(message.data)
        if message.data == "reject":
            raise Reject("Never")
        if message.data == "retry":
            raise Retry(delay=3_600)
        if message.data == "fail" and message.delivery_count == 1:
            raise KeyError("first")

    broker.send_many(queue, [Outgoing(data=d) for d in ("ok", "reject", "retry", "fail")])
    with caplog.at_level(logging.ERROR, "django_mqlite.client"):
        loop = work(broker, queue, handle, threads=2)
        wait_until(lambda: broker.stats(queue)["total"] == 2, "the messages to be handled")
        assert loop.end() is None

    assert sorted(seen) == ["fail", "fail", "ok", "reject", "retry"]
    counts = broker.stats(queue)
    assert (counts["dead_lettered"], counts["scheduled"]) == (1, 1)
    assert [record.exc_info[0] for record in caplog.records] == [KeyError]


@pytest.mark.rule("23.3")
def test_work_renews_leases_while_handlers_run(broker, wire, work):
    queue = wire.queue(lock_duration_ms=1_000)
    go_on, counts = Event(), []

    def handle(message):
        assert go_on.wait(PATIENCE)
        counts.append((message.delivery_count, message.lost))

    broker.send(queue, 1)
    loop = work(broker, queue, handle)
    wait_until(lambda: broker.stats(queue)["locked"] == 1, "the message to be received")
    deadline = time.monotonic() + 2.5
    wait_until(lambda: time.monotonic() > deadline, "two leases to pass")
    go_on.set()
    wait_until(lambda: broker.stats(queue)["total"] == 0, "the message to be completed")

    assert loop.end() is None
    assert counts == [(1, False)]


@pytest.mark.rule("23.3")
def test_work_notices_a_lost_lease(broker, wire, work, caplog):
    queue = wire.queue(lock_duration_ms=1_000)
    lost = Event()

    def handle(message):
        if message.delivery_count == 1:
            message.abandon()  # somebody else ends the lease
            wait_until(lambda: message.lost, "the loss to be noticed")
            lost.set()

    broker.send(queue, 1)
    loop = work(broker, queue, handle)
    assert lost.wait(PATIENCE)
    wait_until(lambda: broker.stats(queue)["total"] == 0, "the second delivery")

    assert loop.end() is None


@pytest.mark.rule("23.3")
def test_work_receives_no_more_than_it_has_threads(broker, queue, work):
    go_on = Event()
    broker.send_many(queue, [Outgoing(data=number) for number in range(5)])

    loop = work(broker, queue, lambda message: go_on.wait(PATIENCE), threads=2)
    wait_until(lambda: broker.stats(queue)["locked"] == 2, "two messages to be received")

    assert broker.stats(queue)["active"] == 3
    loop.stop.set()
    go_on.set()
    assert loop.end() is None
    assert broker.stats(queue)["active"] == 3


@pytest.mark.rule("23.3")
def test_work_on_a_missing_queue_ends_with_the_error(broker, work):
    loop = work(broker, "missing", lambda message: None)

    wait_until(lambda: loop.error is not None, "the error")
    assert loop.error.code == "not_found"
    with pytest.raises(ValueError, match="threads must be at least 1"):
        broker.work("missing", lambda message: None, threads=0)


# 23.4


@pytest.mark.rule("23.4")
def test_client_needs_no_django_settings():
    code = (
        "import sys, django_mqlite.client; from django.conf import settings;"
        "sys.exit(settings.configured or 'django.db.models' in sys.modules)"
    )

    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env={"PATH": ""}, check=False, capture_output=True
    )

    assert done.returncode == 0, done.stderr


@pytest.mark.rule("23.4")
def test_client_without_its_library_says_what_to_install():
    code = "import sys; sys.modules['urllib3'] = None; import django_mqlite.client"

    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, check=False, capture_output=True, text=True
    )

    assert "pip install 'django-mqlite[client]'" in done.stderr
