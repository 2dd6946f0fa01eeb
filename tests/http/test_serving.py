"""Starting, embedding and stopping the broker."""

import socket
import threading
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from django_mqlite.http.asgi import MqliteBroker
from django_mqlite.http.broker import Broker
from django_mqlite.http.keys import Keyring
from django_mqlite.http.server import Server as HttpServer
from django_mqlite.models import AccessKey
from django_mqlite.worker.shutdown import Shutdown
from tests.http.serving import TOKEN, Client, free_port, start_server
from tests.support.waiting import PATIENCE, wait_until


@pytest.fixture
def start(file, tmp_path, http):
    """Start a server for one test; return it with a client."""
    servers = []

    def start(kind, *options, **environment):
        log = tmp_path / f"{kind}-{len(servers)}.log"
        server = start_server(kind, file.path, log, *options, **environment)
        servers.append(server)
        server.wait_ready()
        return server, Client(url=server.url, http=http)

    yield start
    for server in servers:
        server.end()


# Stopping


@pytest.mark.rule("19.6")
@pytest.mark.parametrize("kind", ["runbroker", "asgi", "wsgi"])
def test_term_ends_waiting_requests_with_an_empty_answer(start, kind):
    server, client = start(kind)
    queue = client.queue()
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(client.post, "Receive", {"queue": queue, "wait_time_ms": 20_000})
        client.stats(queue)  # one more round trip, so that the request has probably arrived

        server.terminate()

        response = waiting.result(PATIENCE)
    assert (response.status_code, response.content) == (200, b'{"messages":[]}\n')
    assert server.exit_code() in (0, -15)
    assert "Traceback" not in server.output


@pytest.mark.rule("19.6")
@pytest.mark.parametrize("kind", ["runbroker", "asgi", "wsgi"])
def test_every_message_that_was_acknowledged_before_a_stop_is_stored(start, file, kind):
    server, client = start(kind)
    queue = client.queue()
    acknowledged = []
    enough = threading.Event()

    def send_until_it_stops():
        with httpx.Client(timeout=PATIENCE) as http:
            sender = Client(url=server.url, http=http)
            while True:
                try:
                    acknowledged.extend(sender.send(queue, b"x"))
                except (httpx.TransportError, AssertionError):
                    return
                if len(acknowledged) > 100:
                    enough.set()

    senders = [threading.Thread(target=send_until_it_stops) for _ in range(4)]
    for sender in senders:
        sender.start()
    assert enough.wait(PATIENCE)
    server.terminate()
    for sender in senders:
        sender.join(PATIENCE)
    server.exit_code()

    stored = file.rows(f"SELECT id FROM mqlite_messages WHERE queue = '{queue}'")
    assert set(acknowledged) <= {id for (id,) in stored}
    assert file.is_sound()


# runbroker


@pytest.mark.rule("19.7")
def test_broker_without_a_valid_key_or_token_does_not_start(database, monkeypatch):
    monkeypatch.delenv("MQLITE_TOKENS", raising=False)
    keys = AccessKey.objects.db_manager("worker")
    keys.create_key("former", send=["*"])
    keys.revoke("former")

    with pytest.raises(CommandError, match="no access key and no token"):
        call_command("runbroker", database="worker", skip_checks=True)


@pytest.mark.rule("19.7")
@pytest.mark.parametrize("host", ["0.0.0.0", "::", "example.com", "192.168.1.1"])
def test_open_broker_listens_on_loopback_only(file, host):
    with pytest.raises(CommandError, match="loopback"):
        call_command("runbroker", "--open", host=host, database="worker", skip_checks=True)


@pytest.mark.parametrize("value", ["", " , "])
def test_tokens_without_a_token_are_refused(file, monkeypatch, value):
    monkeypatch.setenv("MQLITE_TOKENS", value)

    with pytest.raises(CommandError, match="has no token"):
        call_command("runbroker", database="worker", skip_checks=True)


@pytest.mark.rule("19.7")
def test_open_broker_asks_for_no_token_and_allows_no_origin(start):
    _, client = start("runbroker", "--open", MQLITE_TOKENS="")

    response = client.http.post(client.path("ListQueues"), content=b"{}")

    assert response.status_code == 200
    assert "access-control-allow-origin" not in response.headers
    assert client.http.get(client.url + "/").json()["auth"] == "none"
    assert client.http.options(client.url + "/nope").status_code == 404


def test_tokens_are_read_from_a_file_too(start, tmp_path):
    path = tmp_path / "tokens"
    path.write_text("first\n\nsecond\n")
    _, client = start("runbroker", f"--tokens-file={path}")

    for token, status in (("first", 200), ("second", 200), (TOKEN, 200), ("third", 401)):
        response = client.post("ListQueues", headers={"Authorization": f"Bearer {token}"})
        assert response.status_code == status


@pytest.mark.parametrize(
    ("cors", "origin", "vary"),
    [("https://a.example", "https://a.example", "Origin"), ("off", None, None)],
)
def test_allowed_origin_is_configurable(start, cors, origin, vary):
    _, client = start("runbroker", MQLITE_CORS=cors)

    headers = client.http.get(client.url + "/healthz").headers

    assert headers.get("access-control-allow-origin") == origin
    assert headers.get("vary") == vary


@pytest.mark.rule("19.7")
def test_broker_runs_a_reaper_beside_it(start, file):
    _, client = start("runbroker")
    queue = client.queue(lock_duration_ms=1)
    client.send(queue)
    client.receive_one(queue)

    wait_until(lambda: client.stats(queue)["active"] == 1, "the expired lease to be released")


def test_database_error_is_an_internal_error_and_the_broker_goes_on(start, file):
    _, client = start("runbroker", "--no-reaper", MQLITE_TEST_TIMEOUT="0.1")
    queue = client.queue()

    with file.locked():
        refused = client.refused("Send", queue=queue, messages=[{}])

    assert refused == (500, "internal")
    assert client.send(queue)


# Embedding


@pytest.mark.parametrize("kind", ["asgi", "wsgi"])
def test_other_paths_go_to_the_project(server_of, kind):
    server = server_of(kind)

    response = httpx.get(f"http://127.0.0.1:{server.port}/home/")

    assert (response.status_code, response.text) == (200, "home")
    assert "access-control-allow-origin" not in response.headers


def test_waitress_serves_the_same(start):
    _, client = start("waitress")
    queue = client.queue()
    client.send(queue, b"x")

    received = client.receive_one(queue, wait_time_ms=1_000)

    assert client.settle("Complete", queue, received) == {"ok": True}
    assert client.post("Send", b"x" * 33 * 2**20).status_code == 413


def test_connection_whose_headers_take_too_long_is_closed(file, monkeypatch):
    monkeypatch.setattr("django_mqlite.http.server.HEADER_SECONDS", 0.2)
    broker = Broker(using="worker", keyring=Keyring(using="worker", is_open=True), cors="")
    shutdown = Shutdown()
    port = free_port()
    server = HttpServer(MqliteBroker(broker=broker), shutdown, host="127.0.0.1", port=port)
    thread = threading.Thread(target=server.run_until_shutdown)
    thread.start()
    try:
        wait_until(lambda: server.started, "the server to start")
        for half in (b"", b"POST / HTTP/1.1\r\nHost:"):
            with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as connection:
                connection.sendall(half)
                assert connection.recv(1) == b""
        with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as connection:
            connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
            assert connection.recv(4096).startswith(b"HTTP/1.1 200")
    finally:
        shutdown.request()
        thread.join(PATIENCE)
