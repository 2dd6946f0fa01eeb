"""The broker as a Django view, for projects that are served by WSGI.

A request occupies a thread of the server while it waits for a message, so it waits MAX_WAIT seconds
at most. Middleware of the project applies, but not its transactions, its limits on the size of a
request, its protection against cross-site requests, or its login.
"""

import time
from functools import cache
from threading import Event
from typing import Any

from django.contrib.auth.decorators import login_not_required
from django.db import connections
from django.http import HttpRequest, HttpResponse
from django.views.decorators.csrf import csrf_exempt

from . import wire
from .broker import (
    MAX_REQUEST_BYTES,
    Broker,
    Reply,
    decoded,
    error_reply,
    record_request,
    required,
    too_large,
)
from .errors import invalid_argument
from .polls import Polls, Waiter
from .verbs import RECEIVE, Context, wait_seconds

MAX_WAIT = 5.0
"""Seconds that a request waits for messages at most."""

CHUNK = 64 * 1024


@csrf_exempt
@login_not_required
def serve(request: HttpRequest, path: str) -> HttpResponse:
    """Answer a request for a path of the broker."""
    started = time.perf_counter()
    broker = _broker()
    method, path = str(request.method), f"/{path}"
    reply, is_quiet = _reply(broker, request, method, path)
    response = HttpResponse(
        reply.body, status=reply.status, content_type=reply.content_type or None
    )
    if not reply.content_type:
        del response["Content-Type"]
    for name, value in broker.headers(method):
        response[name] = value
    record_request(method, path, reply.status, time.perf_counter() - started, is_quiet=is_quiet)
    return response


# Every database: a claim in the transaction of a request would be undone with its response.
serve._non_atomic_requests = set(connections)  # type: ignore[attr-defined]  # noqa: SLF001


@cache
def _broker() -> Broker:
    return Broker.configured()


@cache
def _polls() -> Polls:
    return Polls(_broker().using)


def _reply(broker: Broker, request: HttpRequest, method: str, path: str) -> tuple[Reply, bool]:
    reply = broker.preflight(method) or broker.open_reply(path)
    if reply is not None:
        return reply, False
    try:
        authorization = request.headers.get("Authorization", "").encode("latin-1", "replace")
        keyring = broker.keyring
        key = required(keyring.known_key(authorization) or keyring.stored_key(authorization))
        if path == "/metrics":
            return broker.metrics(key), False
        rpc = broker.rpc(method, path)
        rpc_request = decoded(rpc, _read_body(request), key)
        context = broker.context(key)
        if rpc is RECEIVE:
            response = _receive(rpc_request, context)
            return Reply(200, wire.encode(response)), not response.messages
        return Reply(200, wire.encode(rpc.run(rpc_request, context))), False
    except Exception as error:  # noqa: BLE001 - every error is an answer
        return error_reply(error), False


def _receive(request: wire.ReceiveRequest, context: Context) -> wire.MessagesResponse:
    """Claim messages; if there are none, wait until there are some, or for the given time."""
    response: wire.MessagesResponse = RECEIVE.run(request, context)  # type: ignore[assignment]
    ends_at = time.monotonic() + min(wait_seconds(request), MAX_WAIT)
    while not response.messages and time.monotonic() < ends_at:
        woken = Event()
        waiter = Waiter(request.queue, woken.set)
        _polls().add(waiter)
        try:
            response = RECEIVE.run(request, context)  # type: ignore[assignment]
            if response.messages:
                _polls().wake_after_success(request.queue)
                break
            woken.wait(max(0.0, ends_at - time.monotonic()))
            if waiter.take_wake():
                response = RECEIVE.run(request, context)  # type: ignore[assignment]
                if response.messages:
                    _polls().wake_after_success(request.queue)
        finally:
            _polls().remove(waiter)
    return response


def _read_body(request: HttpRequest) -> bytes:
    """Return the request's body; raise Refusal if it is too large.

    It is read from the stream, because `request.body` obeys DATA_UPLOAD_MAX_MEMORY_SIZE. The rest
    of a body that is too large is dropped, because a client that is still sending would not see the
    answer.
    """
    if hasattr(request, "_body"):  # a middleware has read it
        return bytes(request.body)
    stream = _stream(request)
    chunks: list[bytes] = []
    size = 0
    try:
        while size <= 2 * MAX_REQUEST_BYTES and (chunk := stream.read(CHUNK)):
            size += len(chunk)
            if size <= MAX_REQUEST_BYTES:
                chunks.append(chunk)
    except OSError as error:
        raise invalid_argument(f"Could not read the request: {error}.") from error
    if size > MAX_REQUEST_BYTES:
        raise too_large()
    return b"".join(chunks)


def _stream(request: HttpRequest) -> Any:
    """Return the request's stream; of a chunked request, Django's own would be empty."""
    environ = getattr(request, "environ", {})
    if environ.get("wsgi.input_terminated") and not environ.get("CONTENT_LENGTH"):
        return environ["wsgi.input"]
    return request
