"""The server of `runbroker`: uvicorn with the broker alone."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.core.exceptions import ImproperlyConfigured

from ..guard import get_logger
from ..worker.shutdown import Shutdown
from .asgi import MqliteBroker

try:
    import uvicorn
    from uvicorn.protocols.http.auto import AutoHTTPProtocol
except ImportError as error:
    raise ImproperlyConfigured(
        "The HTTP broker needs the extra [http]: pip install 'django-mqlite[http]'"
    ) from error

logger = get_logger("django_mqlite.http")

HEADER_SECONDS = 10
"""How long a client may take to send the headers of a request."""

KEEP_ALIVE_SECONDS = 120
SHUTDOWN_SECONDS = 25
"""How long a shutdown waits for running requests."""


class Protocol(AutoHTTPProtocol):  # type: ignore[misc, valid-type]
    """A connection that is closed if the headers of a request take too long."""

    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._start_timer()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.cycle is None or self.cycle.response_complete:  # the headers are not complete
            self._start_timer()
        else:
            self._stop_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def _start_timer(self) -> None:
        if self._timer is None:
            self._timer = self.loop.call_later(HEADER_SECONDS, self.transport.close)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class Server(uvicorn.Server):
    """Serve the broker until shutdown is requested."""

    def __init__(self, app: MqliteBroker, shutdown: Shutdown, *, host: str, port: int) -> None:
        self._app = app
        self._address = f"http://{host}:{port}" if ":" not in host else f"http://[{host}]:{port}"
        config = uvicorn.Config(
            app,
            host=host,
            port=port,
            http=Protocol,
            lifespan="off",
            ws="none",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=SHUTDOWN_SECONDS,
        )
        super().__init__(config)
        shutdown.on_request(self._stop)

    def run_until_shutdown(self) -> None:
        """Serve; return when every request has been answered."""
        try:
            self.run()
        finally:
            self._app.close()
        logger.info("the broker has stopped")

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the signals to Shutdown."""
        yield

    async def startup(self, sockets: list[object] | None = None) -> None:  # type: ignore[override]
        """Start to listen."""
        await super().startup(sockets)  # type: ignore[arg-type]
        logger.info("the broker serves %s", self._address)

    def _stop(self) -> None:
        self._app.end_polls()
        self.should_exit = True
