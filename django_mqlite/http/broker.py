"""The answers of the broker, whatever serves it: paths, authentication, headers, errors."""

import logging
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from .. import __version__
from ..checks import queue_alias
from ..conf import get_settings
from ..formatting import printable
from ..guard import get_logger
from . import wire
from .errors import Refusal, invalid_argument, refusal_of
from .keys import Key, Keyring, configured_keyring
from .metrics import process_counts, render
from .openapi import document
from .routes import MQLITE_RPCS, RPCS
from .verbs import Context, Rpc, check_right

logger = get_logger("django_mqlite.http")

MAX_REQUEST_BYTES = 32 * 1024 * 1024
READ_TIMEOUT = 60.0
"""Seconds in which the whole request must have arrived."""

JSON = "application/json"
METRICS = "text/plain; version=0.0.4; charset=utf-8"


class Reply(NamedTuple):
    """An answer to a request."""

    status: int
    body: bytes
    content_type: str = JSON


Headers = Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Broker:
    """The configuration of the broker, and its answers that need no request body."""

    using: str
    keyring: Keyring
    cors: str
    """The allowed origin; "" sends no cross-origin headers."""

    started_at: float = field(default_factory=time.monotonic)

    @classmethod
    def configured(cls, *, using: str | None = None, keyring: Keyring | None = None) -> "Broker":
        """Return the broker of the environment and of the MQLITE setting."""
        using = using or queue_alias()
        keyring = configured_keyring(using) if keyring is None else keyring
        process_counts.count_completions()
        return cls(
            using=using,
            keyring=keyring,
            cors=_allowed_origin(has_auth=not keyring.is_open),
        )

    def preflight(self, method: str) -> Reply | None:
        """Return the answer to a browser's preflight request, which needs no authentication."""
        return Reply(204, b"", "") if self.cors and method == "OPTIONS" else None

    def headers(self, method: str) -> Headers:
        """Return the cross-origin headers of every response."""
        if not self.cors:
            return ()
        headers = [("Access-Control-Allow-Origin", self.cors)]
        if self.cors != "*":
            headers.append(("Vary", "Origin"))
        if method == "OPTIONS":
            headers += [
                ("Access-Control-Allow-Methods", "GET, POST, OPTIONS"),
                ("Access-Control-Allow-Headers", "Authorization, Content-Type"),
                ("Access-Control-Max-Age", "86400"),
            ]
        return headers

    def open_reply(self, path: str) -> Reply | None:
        """Return the answer to a path that needs no authentication, None for any other."""
        if path == "/":
            return Reply(200, wire.encode(self._card()))
        if path == "/healthz":
            return Reply(200, b"ok", "text/plain; charset=utf-8")
        if path == "/openapi.json":
            return Reply(200, document())
        if path == "/ui" or path.startswith("/ui/"):
            return error_reply(_no_such_path(path))
        return None

    def metrics(self, key: Key) -> Reply:
        """Return the metrics; raise Refusal unless the key may manage every queue."""
        check_right(key, "manage")
        return Reply(200, render(self.using), METRICS)

    def rpc(self, method: str, path: str) -> Rpc:
        """Return the RPC at this path; raise Refusal for another path or method."""
        rpc = RPCS.get(path)
        if rpc is None:
            raise _no_such_path(path)
        if method != "POST":
            raise Refusal(405, "unimplemented", f"Send a POST request to {path}.")
        return rpc

    def context(self, key: Key) -> Context:
        """Return the context of a request by this key."""
        return Context(
            using=self.using,
            key=key,
            has_auth=not self.keyring.is_open,
            started_at=self.started_at,
        )

    def _card(self) -> wire.DiscoveryCard:
        return wire.DiscoveryCard(
            name="mqlite",
            description="A durable message queue in the database of a Django project.",
            version=__version__,
            status="ok",
            auth="none" if self.keyring.is_open else "bearer",
            docs="https://github.com/mqlitehq/mqlite",
            endpoints=list(MQLITE_RPCS),
            health="/healthz",
            metrics="/metrics",
        )


def _allowed_origin(*, has_auth: bool) -> str:
    configured = os.environ.get("MQLITE_CORS")
    origin = get_settings().cors if configured is None else configured.strip()
    if not origin:
        return "*" if has_auth else ""
    return "" if origin.lower() == "off" else origin


def decoded(rpc: Rpc, body: bytes, key: Key) -> Any:
    """Return the request; raise Refusal if it is wrong, or if the key may not send it."""
    request = None
    if rpc.decode is not None:
        try:
            request = rpc.decode(body)
        except ValueError as error:
            raise invalid_argument(str(error)) from error
    rpc.check_rights(request, key)
    return request


def required(key: Key | None) -> Key:
    """Return the key; raise Refusal if there is none."""
    if key is None:
        raise Refusal(
            401, "unauthenticated", "Send a valid access key as 'Authorization: Bearer KEY'."
        )
    return key


def too_large() -> Refusal:
    """Return the refusal of a request that is over the limit."""
    return Refusal(
        413, "message_too_large", f"The request is over the limit of {MAX_REQUEST_BYTES:,} bytes."
    )


def error_reply(error: Exception) -> Reply:
    """Return the answer for an exception."""
    refusal = refusal_of(error)
    body = wire.ErrorBody(code=refusal.code, message=refusal.message)
    return Reply(refusal.status, wire.encode(body))


def record_request(method: str, path: str, status: int, seconds: float, *, is_quiet: bool) -> None:
    """Count a request, and log it at a level that depends on its status.

    Empty answers to long polls are logged only for debugging.
    """
    if path in RPCS:
        process_counts.observe_rpc(path.rpartition("/")[2], seconds)
    level = logging.INFO
    if is_quiet:
        level = logging.DEBUG
    elif status >= 500:
        level = logging.ERROR
    elif status >= 400:
        level = logging.WARNING
    logger.log(
        level, "%s %s %d %.1f ms", printable(method), printable(path), status, seconds * 1000
    )


def _no_such_path(path: str) -> Refusal:
    return Refusal(404, "not_found", f"no such path: {path}")
