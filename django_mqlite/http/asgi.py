"""The broker as an ASGI application, alone or in front of a project's own."""

import asyncio
import signal
import time
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from threading import current_thread, main_thread
from types import FrameType
from typing import Any

from django.db import connections

from . import wire
from .broker import (
    MAX_REQUEST_BYTES,
    READ_TIMEOUT,
    Broker,
    Reply,
    decoded,
    error_reply,
    record_request,
    required,
    too_large,
)
from .errors import invalid_argument
from .keys import Key
from .polls import Polls, Waiter
from .verbs import RECEIVE, Context, Rpc, wait_seconds
from .writer import Job, Writer

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[Mapping[str, Any]], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

READERS = 4
LARGE = 256 * 1024
"""Bytes of JSON that are converted in a thread, because they would hold up other requests."""


class ClientGone(Exception):
    """The client closed the connection before the request was complete."""


class Runtime:
    """The threads of the broker for one event loop."""

    def __init__(self, using: str) -> None:
        self.loop = asyncio.get_running_loop()
        self.polls = Polls(using)
        self._using = using
        self._writer = Writer(using, self._deliver)
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="mqlite-http-reader")

    async def write(self, call: Callable[[], Any]) -> Any:
        """Run a short write, which may share its commit with others."""
        job = Job(call, self.loop.create_future())
        self._writer.submit(job)
        try:
            return await job.future
        except asyncio.CancelledError:
            job.canceled = True
            raise

    async def read(self, call: Callable[[], Any]) -> Any:
        """Run a read, or a write of several transactions, on a connection of its own."""
        return await self.loop.run_in_executor(self._readers, partial(_closing, self._using, call))

    def close(self) -> None:
        """End polls, finish what was submitted, and end the threads."""
        self.polls.close()
        self._writer.close()
        self._readers.shutdown()

    def _deliver(self, jobs: Sequence[Job]) -> None:
        with suppress(RuntimeError):  # the loop is closed
            self.loop.call_soon_threadsafe(_resolve, jobs)


def _resolve(jobs: Sequence[Job]) -> None:
    for job in jobs:
        if job.future.done():
            continue
        if job.error is None:
            job.future.set_result(job.result)
        else:
            job.future.set_exception(job.error)


def _closing(using: str, call: Callable[[], Any]) -> Any:
    try:
        return call()
    finally:
        connections[using].close()


class MqliteBroker:
    """The broker below `prefix`; requests for other paths go to `application`.

    Without an application, the broker answers every path. It does not use Django's request
    handling, so the project's middleware does not apply to it.
    """

    def __init__(
        self,
        application: Application | None = None,
        *,
        prefix: str = "",
        broker: Broker | None = None,
    ) -> None:
        self._application = application
        self._prefix = prefix.rstrip("/")
        self._configured = broker
        self._runtime: Runtime | None = None
        self._closing = False

    @property
    def broker(self) -> Broker:
        """The configuration, which is read with the first request."""
        if self._configured is None:
            self._configured = Broker.configured()
        return self._configured

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._lifespan(scope, receive, send)
            return
        path = self._path_of(scope)
        if path is None and self._application is not None:
            await self._application(scope, receive, send)
        elif scope["type"] == "http":
            await self._respond(scope, path or scope["path"], receive, send)

    def end_polls(self) -> None:
        """End the requests that wait for messages with an empty answer, also later ones."""
        self._closing = True
        if self._runtime is not None:
            self._runtime.polls.close()

    def close(self) -> None:
        """End polls, finish what runs, and end the threads."""
        self.end_polls()
        if self._runtime is not None:
            self._runtime.close()
            self._runtime = None

    def _path_of(self, scope: Scope) -> str | None:
        """Return the path below the prefix, None if the request is not for the broker."""
        path: str = scope.get("path", "")
        root_path: str = scope.get("root_path", "")
        if root_path and path.startswith(root_path + "/"):
            path = path[len(root_path) :]
        if not self._prefix:
            return path
        if path == self._prefix or path.startswith(self._prefix + "/"):
            return path[len(self._prefix) :] or "/"
        return None

    def _started(self) -> Runtime:
        if self._runtime is None or self._runtime.loop is not asyncio.get_running_loop():
            self._runtime = Runtime(self.broker.using)
            if self._closing:
                self._runtime.polls.close()
        return self._runtime

    async def _respond(self, scope: Scope, path: str, receive: Receive, send: Send) -> None:
        started = time.perf_counter()
        method = scope["method"]
        try:
            reply, is_quiet = await self._reply(scope, method, path, receive)
        except ClientGone:
            return
        await send(
            {
                "type": "http.response.start",
                "status": reply.status,
                "headers": _encoded_headers(reply, self.broker.headers(method)),
            }
        )
        await send({"type": "http.response.body", "body": reply.body})
        record_request(method, path, reply.status, time.perf_counter() - started, is_quiet=is_quiet)

    async def _reply(
        self, scope: Scope, method: str, path: str, receive: Receive
    ) -> tuple[Reply, bool]:
        """Return the answer, and whether it is one of many empty ones."""
        broker = self.broker
        reply = broker.preflight(method) or broker.open_reply(path)
        if reply is not None:
            return reply, False
        try:
            headers = dict(reversed(list(scope["headers"])))  # the first of equal names counts
            key = await self._authenticate(headers.get(b"authorization", b""))
            if path == "/metrics":
                return await self._started().read(partial(broker.metrics, key)), False
            rpc = broker.rpc(method, path)
            request = await self._decoded(rpc, await _read_body(headers, receive), key)
            context = broker.context(key)
            if rpc is RECEIVE:
                response = await self._receive(request, context, receive)
                return await _encoded(response), not response.messages
            return await _encoded(await self._run(rpc, request, context)), False
        except (ClientGone, asyncio.CancelledError):
            raise
        except Exception as error:  # noqa: BLE001 - every error is an answer
            return error_reply(error), False

    async def _authenticate(self, authorization: bytes) -> Key:
        keyring = self.broker.keyring
        key = keyring.known_key(authorization)
        if key is None and authorization:
            key = await self._started().read(partial(keyring.stored_key, authorization))
        return required(key)

    async def _decoded(self, rpc: Rpc, body: bytes, key: Key) -> Any:
        if len(body) < LARGE:
            return decoded(rpc, body, key)
        return await asyncio.to_thread(decoded, rpc, body, key)

    async def _run(self, rpc: Rpc, request: Any, context: Context) -> Any:
        runtime = self._started()
        lane = runtime.write if rpc.lane == "write" else runtime.read
        return await lane(partial(rpc.run, request, context))

    async def _receive(
        self, request: wire.ReceiveRequest, context: Context, receive: Receive
    ) -> wire.MessagesResponse:
        """Claim messages; if there are none, wait until there are some, or for the given time."""
        response: wire.MessagesResponse = await self._run(RECEIVE, request, context)
        seconds = wait_seconds(request)
        if response.messages or not seconds:
            return response
        ends_at = time.monotonic() + seconds
        polls = self._started().polls
        disconnect = asyncio.ensure_future(_disconnected(receive))
        try:
            while not response.messages and not polls.closed and time.monotonic() < ends_at:
                response = await self._wait_and_claim(request, context, disconnect, ends_at)
        finally:
            disconnect.cancel()
        return response

    async def _wait_and_claim(
        self,
        request: wire.ReceiveRequest,
        context: Context,
        disconnect: "asyncio.Future[None]",
        ends_at: float,
    ) -> wire.MessagesResponse:
        """Register, claim again, and wait for a commit or the end, whichever is first."""
        runtime = self._started()
        woken = asyncio.Event()
        waiter = Waiter(request.queue, partial(_set_from_any_thread, runtime.loop, woken))
        runtime.polls.add(waiter)
        try:
            response: wire.MessagesResponse = await self._run(RECEIVE, request, context)
            if response.messages:
                runtime.polls.wake_after_success(request.queue)
                return response
            wake = asyncio.ensure_future(woken.wait())
            await asyncio.wait(
                (wake, disconnect),
                timeout=max(0.0, ends_at - time.monotonic()),
                return_when=asyncio.FIRST_COMPLETED,
            )
            wake.cancel()
            if disconnect.done():
                raise ClientGone
            if waiter.take_wake():
                response = await self._run(RECEIVE, request, context)
                if response.messages:
                    runtime.polls.wake_after_success(request.queue)
            return response
        finally:
            runtime.polls.remove(waiter)

    async def _lifespan(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle the start and the end of the server, with the application if it does so, too."""
        answered = False

        async def observed() -> MutableMapping[str, Any]:
            event = await receive()
            if event["type"] == "lifespan.startup":
                self._end_polls_on_signals()
            else:
                self.close()
            return event

        async def answer(event: Mapping[str, Any]) -> None:
            nonlocal answered
            answered = True
            await send(event)

        if self._application is not None:
            try:
                await self._application(scope, observed, answer)
                return
            except Exception:
                if answered:
                    raise
        # Django's application refuses lifespan events before it reads one.
        while (event := await observed())["type"] == "lifespan.startup":
            await send({"type": "lifespan.startup.complete"})
        await send({"type": f"{event['type']}.complete"})

    def _end_polls_on_signals(self) -> None:
        """End polls when the server is told to stop, because it first waits for its requests."""
        if current_thread() is not main_thread():
            return
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            previous = signal.getsignal(number)
            if callable(previous):
                signal.signal(number, partial(_signaled, loop, self.end_polls, previous))


def _signaled(
    loop: asyncio.AbstractEventLoop,
    end_polls: Callable[[], None],
    previous: Callable[[int, FrameType | None], Any],
    number: int,
    frame: FrameType | None,
) -> None:
    with suppress(RuntimeError):  # the loop is closed
        loop.call_soon_threadsafe(end_polls)
    previous(number, frame)


def _set_from_any_thread(loop: asyncio.AbstractEventLoop, event: asyncio.Event) -> None:
    with suppress(RuntimeError):  # the loop is closed
        loop.call_soon_threadsafe(event.set)


async def _read_body(headers: Mapping[bytes, bytes], receive: Receive) -> bytes:
    """Return the request's body; raise Refusal if it is too large or takes too long.

    The rest of a body that is too large is read and dropped, within limits, because a client that
    is still sending would not see the answer.
    """
    announced = headers.get(b"content-length", b"")
    if b"expect" in headers and announced.isdigit() and int(announced) > MAX_REQUEST_BYTES:
        raise too_large()
    chunks: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(READ_TIMEOUT):
            has_more = True
            while has_more and size <= 2 * MAX_REQUEST_BYTES:
                event = await receive()
                if event["type"] == "http.disconnect":
                    raise ClientGone
                chunk = event.get("body", b"")
                size += len(chunk)
                if size <= MAX_REQUEST_BYTES:
                    chunks.append(chunk)
                has_more = event.get("more_body", False)
    except TimeoutError:
        raise invalid_argument(
            f"The request did not arrive within {READ_TIMEOUT:g} seconds."
        ) from None
    if size > MAX_REQUEST_BYTES:
        raise too_large()
    return b"".join(chunks)


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _encoded(response: wire.Response) -> Reply:
    messages = getattr(response, "messages", ())
    if sum(len(message.body) for message in messages) < LARGE:
        return Reply(200, wire.encode(response))
    return Reply(200, await asyncio.to_thread(wire.encode, response))


def _encoded_headers(reply: Reply, headers: Sequence[tuple[str, str]]) -> list[tuple[bytes, bytes]]:
    encoded = [(name.lower().encode(), value.encode("latin-1")) for name, value in headers]
    if reply.content_type:
        encoded.append((b"content-type", reply.content_type.encode()))
    if reply.status != 204:
        encoded.append((b"content-length", str(len(reply.body)).encode()))
    return encoded
