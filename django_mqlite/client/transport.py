"""Requests to the broker: authentication, errors, and retries of requests that can be repeated.

The library urllib3 has a pool of connections that threads can share and verifies certificates. It
depends on no other package, and is tested with as many servers as any.
"""

import json
import random
import time
from email.utils import parsedate_to_datetime
from typing import Any

from .errors import BrokerError, LeaseLost, OutcomeUnknown, Unreachable

try:
    import urllib3
except ImportError as error:
    raise ImportError(
        "django_mqlite.client needs the extra [client]: pip install 'django-mqlite[client]'"
    ) from error

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0
CONNECT_TIMEOUT, READ_TIMEOUT = 10.0, 30.0
"""Seconds; a long poll has its own time in addition."""

UNAVAILABLE = frozenset({500, 502, 503, 504})
"""Answers of a broker or a proxy that is starting, stopping or busy."""

REFUSED_BEFORE_SENDING = (
    urllib3.exceptions.NewConnectionError,
    urllib3.exceptions.ConnectTimeoutError,
    urllib3.exceptions.NameResolutionError,
)


class Transport:
    """A pool of connections to one broker. Threads may share it."""

    def __init__(self, url: str, key: str, *, retry_for: float, connections: int) -> None:
        self._url = url.rstrip("/")
        self._retry_for = retry_for
        headers = {"Content-Type": "application/json"}
        if key:
            headers["Authorization"] = f"Bearer {key}"
        self._pool = urllib3.PoolManager(
            maxsize=connections, block=False, retries=False, headers=headers
        )
        self._clock_ahead = 0.0

    def close(self) -> None:
        """Close the idle connections."""
        self._pool.clear()

    def now_ms(self) -> int:
        """Return the time of the broker's machine, to about a second."""
        return int((time.time() + self._clock_ahead) * 1000)

    def call(
        self, service: str, method: str, request: dict[str, Any], *, repeat: bool, wait: float = 0
    ) -> Any:
        """Call an RPC and return its answer.

        With `repeat`, a failed request is sent again for `retry_for` seconds; the RPC must be safe
        to repeat. Otherwise it is only repeated if it cannot have been sent. `wait` is the time of
        a long poll in seconds.

        Raises BrokerError for a refusal, LeaseLost for a lost lease, Unreachable if the broker
        did not answer, and OutcomeUnknown if a request that is not repeated may have been executed.
        """
        path = f"/mqlite.v1.{service}/{method}"
        body = json.dumps({name: value for name, value in request.items() if value}).encode()
        ends_at = time.monotonic() + self._retry_for
        pause = FIRST_PAUSE
        while True:
            try:
                return self._once(path, body, wait)
            except (BrokerError, urllib3.exceptions.HTTPError) as error:
                failure = _failure(error, repeat=repeat)
                if failure is not None:
                    raise failure from error
                if time.monotonic() + pause > ends_at:
                    raise _last_failure(error, self._url) from error
            time.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(2 * pause, LONGEST_PAUSE)

    def _once(self, path: str, body: bytes, wait: float) -> Any:
        timeout = urllib3.Timeout(connect=CONNECT_TIMEOUT, read=READ_TIMEOUT + wait)
        response = self._pool.request("POST", self._url + path, body=body, timeout=timeout)
        self._read_clock(response.headers.get("Date"))
        document = _document(response.data)
        if response.status == 200:
            return document
        code = str(document.get("code", "unavailable"))
        kind = LeaseLost if code == "lock_lost" else BrokerError
        raise kind(response.status, code, str(document.get("message", "")))

    def _read_clock(self, date: str | None) -> None:
        """Compare the clocks: deadlines are in the time of the broker's machine."""
        try:
            ahead = parsedate_to_datetime(date or "").timestamp() + 0.5 - time.time()
        except (TypeError, ValueError):
            return
        self._clock_ahead = ahead if abs(ahead) > 1 else 0.0


def _failure(error: Exception, *, repeat: bool) -> Exception | None:
    """Return the error to raise at once; None if the request is to be repeated."""
    if isinstance(error, urllib3.exceptions.SSLError):
        return Unreachable(f"The broker's certificate was not accepted: {error}.")
    if isinstance(error, BrokerError):
        is_repeatable = repeat and error.status in UNAVAILABLE
        return None if is_repeatable else error
    if repeat or isinstance(error, REFUSED_BEFORE_SENDING):
        return None
    return OutcomeUnknown(f"The connection broke while messages were sent: {error}.")


def _last_failure(error: Exception, url: str) -> Exception:
    if isinstance(error, BrokerError):
        return error
    return Unreachable(f"The broker at {url} cannot be reached: {error}.")


def _document(data: bytes) -> dict[str, Any]:
    """Return the JSON object, or an empty one for another body, such as a proxy's page."""
    try:
        document = json.loads(data)
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}
