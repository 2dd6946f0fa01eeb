"""Real servers of the broker, and a client of its wire."""

import base64
import itertools
import os
import signal
import socket
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from tests.support.source import ROOT
from tests.support.waiting import PATIENCE, wait_until

TOKEN = "root-token"
KINDS = ("runbroker", "asgi", "wsgi")


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def command_of(kind: str, port: int) -> list[str]:
    """Return the command that serves the broker in this way."""
    python = [sys.executable, "-m"]
    match kind:
        case "runbroker":
            return [*python, "django", "runbroker", f"--port={port}"]
        case "asgi":
            site = "tests.http.site:asgi_application"
            return [*python, "uvicorn", site, f"--port={port}", "--no-access-log"]
        case "wsgi":
            options = [f"--bind=127.0.0.1:{port}", "--threads=24", "--log-level=warning"]
            return [*python, "gunicorn", *options, "tests.http.site:application"]
        case "waitress":
            options = [f"--listen=127.0.0.1:{port}", "--threads=4"]
            return [*python, "waitress", *options, "tests.http.site:application"]
    raise AssertionError(kind)


@dataclass(kw_only=True)
class Server:
    """A process that serves the broker."""

    kind: str
    port: int
    log: Path
    popen: subprocess.Popen[bytes]

    @property
    def url(self) -> str:
        """The address of the broker."""
        prefix = "" if self.kind == "runbroker" else "/mqlite"
        return f"http://127.0.0.1:{self.port}{prefix}"

    @property
    def output(self) -> str:
        return self.log.read_text(errors="replace")

    def wait_ready(self) -> None:
        def is_ready() -> bool:
            assert self.popen.poll() is None, self.output
            try:
                return httpx.get(f"{self.url}/healthz").text == "ok"
            except httpx.TransportError:
                return False

        wait_until(is_ready, f"the {self.kind} server to start")

    def terminate(self) -> None:
        self.popen.send_signal(signal.SIGTERM)

    def exit_code(self) -> int:
        return self.popen.wait(PATIENCE)

    def end(self) -> None:
        self.popen.kill()
        self.popen.wait(PATIENCE)


def start_server(kind: str, database: Path, log: Path, *options: str, **environment: str) -> Server:
    """Start a server on this database; wait_ready() waits for it."""
    port = free_port()
    variables = {
        "DJANGO_SETTINGS_MODULE": "tests.http.site_settings",
        "MQLITE_TEST_DATABASE": str(database),
        "MQLITE_TOKENS": TOKEN,
        **environment,
    }
    with log.open("wb") as output:
        popen = subprocess.Popen(
            [*command_of(kind, port), *options],
            cwd=ROOT,
            env={name: value for name, value in {**os.environ, **variables}.items() if value},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    return Server(kind=kind, port=port, log=log, popen=popen)


ADMIN = {
    *("CreateQueue", "Subscribe", "ListQueues", "ListSubscriptions", "TestFilter"),
    *("Redrive", "Purge", "Status"),
}

_numbers = itertools.count(1)


@dataclass(kw_only=True)
class Client:
    """A client of the broker; every queue that it makes has a new name."""

    url: str
    http: httpx.Client
    headers: dict[str, str] = field(default_factory=lambda: {"Authorization": f"Bearer {TOKEN}"})

    def path(self, method: str) -> str:
        service = "AdminService" if method in ADMIN else "QueueService"
        return f"{self.url}/mqlite.v1.{service}/{method}"

    def post(self, method: str, body: Any = None, **options: Any) -> httpx.Response:
        """Post a body: bytes as they are, anything else as JSON."""
        content = {"content": body} if isinstance(body, bytes) else {"json": body or {}}
        headers = {**self.headers, **options.pop("headers", {})}
        return self.http.post(self.path(method), headers=headers, **content, **options)

    def call(self, method: str, **request: Any) -> dict[str, Any]:
        """Return the response of an RPC; fail unless it is 200."""
        response = self.post(method, request)
        assert response.status_code == 200, response.text
        return response.json()

    def refused(self, method: str, **request: Any) -> tuple[int, str]:
        """Return the status and the code of an RPC that is refused."""
        response = self.post(method, request)
        body = response.json()
        assert set(body) == {"code", "message"}, response.text
        assert body["message"]
        return response.status_code, body["code"]

    def new_name(self, prefix: str = "q") -> str:
        return f"{prefix}-{next(_numbers)}"

    def queue(self, **config: Any) -> str:
        """Create a queue; return its name."""
        name = self.new_name()
        assert self.call("CreateQueue", name=name, config=config) == {}
        return name

    def subscription(self, topic: str, expr: str = "", **config: Any) -> str:
        """Subscribe a new queue to the topic; return its name."""
        name = self.new_name("s")
        assert self.call("Subscribe", topic=topic, name=name, filter={"expr": expr}) == {}
        if config:
            self.call("CreateQueue", name=name, config={"kind": "subscription", **config})
        return name

    def send(self, queue: str, *bodies: bytes, **fields: Any) -> list[int]:
        """Send a message for each body; return the sequence numbers."""
        messages = [{"body": b64(body), **fields} for body in bodies or (b"",)]
        return self.call("Send", queue=queue, messages=messages)["seq_numbers"]

    def receive(self, queue: str, **request: Any) -> list[dict[str, Any]]:
        return self.call("Receive", queue=queue, **request)["messages"]

    def receive_one(self, queue: str, **request: Any) -> dict[str, Any]:
        (message,) = self.receive(queue, **request)
        return message

    def settle(self, method: str, queue: str, message: dict[str, Any], **more: Any) -> Any:
        """Settle a received message; return the response."""
        return self.call(method, **lease_of(queue, message), **more)

    def numbers(self, queue: str, **request: Any) -> list[int]:
        """Return the sequence numbers that a Peek finds."""
        peeked = self.call("Peek", queue=queue, **request)["messages"]
        return [message["seq_number"] for message in peeked]

    def stats(self, queue: str) -> dict[str, Any]:
        return self.call("Stats", queue=queue)


def b64(body: bytes) -> str:
    return base64.b64encode(body).decode()


def lease_of(queue: str, message: dict[str, Any]) -> dict[str, Any]:
    """Return the fields with which a message is settled."""
    return {
        "queue": queue,
        "seq_number": message["seq_number"],
        "lock_token": message["lock_token"],
    }
