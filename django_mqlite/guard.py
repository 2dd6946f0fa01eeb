"""Guarded calls of foreign code: its exceptions are handled or logged, and never propagated.

Foreign code is code of the project: properties and `__str__` of exceptions, signal receivers,
`from_db()`, log handlers. The threads that claim messages and settle and renew leases call it only
with a guard, because an exception there would stop all handlers of the worker.
"""

import contextlib
import logging
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


def call_guarded(function: Callable[[], T], on_error: Callable[[BaseException], T]) -> T:
    """Return the result of `function`, or of `on_error` with the exception that it raised."""
    try:
        return function()
    except BaseException as error:
        if is_interrupt(error):
            raise
        return on_error(error)


def run_guarded(function: Callable[[], object]) -> None:
    """Call `function` and ignore its result; log any exception."""

    def log(error: BaseException) -> None:
        logger.error(
            "a listener raised %s; the error is ignored", type(error).__name__, exc_info=error
        )

    call_guarded(function, log)


def safe_repr(value: object) -> str:
    """Return the `repr` of a value for an error message, even if its `__repr__` raises."""
    return call_guarded(lambda: str.__str__(repr(value))[:100], lambda error: _kind(value))


def _kind(value: object) -> str:
    return f"a value of type {type(value).__name__}"


def is_interrupt(error: BaseException) -> bool:
    """Return True if the error is Ctrl-C, which is always propagated.

    A worker handles SIGINT itself, so there a KeyboardInterrupt was raised by foreign code.
    """
    return (
        issubclass(type(error), KeyboardInterrupt)
        and threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    )


class GuardedLogger(logging.LoggerAdapter[logging.Logger]):
    """A logger that ignores exceptions of handlers, filters and formatters."""

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        try:
            self.logger.log(level, msg, *args, stacklevel=2, **kwargs)
        except BaseException as error:
            if is_interrupt(error):
                raise
            with contextlib.suppress(Exception):
                sys.stderr.write(f"a log handler raised {type(error).__name__}: {msg}\n")


def get_logger(name: str) -> GuardedLogger:
    """Return the guarded logger of this name."""
    return GuardedLogger(logging.getLogger(name))


logger = get_logger("django_mqlite")
