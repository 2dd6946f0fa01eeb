"""Calls of foreign code: whatever it raises is an answer, or is logged, and the caller goes on.

Foreign is what a project may have written: properties and `__str__` of exceptions, receivers of
signals, `from_db()`, handlers of logs. The thread that settles and claims, and the one that renews
leases, run none of it without a guard: one exception there would end the work of all.
"""

import contextlib
import logging
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


def ask(question: Callable[[], T], otherwise: Callable[[BaseException], T]) -> T:
    """Return the answer of foreign code, or `otherwise` of what it raises."""
    try:
        return question()
    except BaseException as error:
        if is_interrupt(error):
            raise
        return otherwise(error)


def tell(listener: Callable[[], object]) -> None:
    """Call foreign code whose answer does not matter; log what it raises."""

    def log(error: BaseException) -> None:
        logger.error("a listener raised %s; it is ignored", type(error).__name__, exc_info=error)

    ask(listener, log)


def is_interrupt(error: BaseException) -> bool:
    """Return whether it is the Ctrl-C of a person, which passes every guard.

    A worker handles SIGINT itself: a KeyboardInterrupt there was raised by foreign code.
    """
    return (
        issubclass(type(error), KeyboardInterrupt)
        and threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    )


class GuardedLogger(logging.LoggerAdapter[logging.Logger]):
    """A logger whose handlers, filters and formatters may raise."""

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        try:
            self.logger.log(level, msg, *args, stacklevel=2, **kwargs)
        except BaseException as error:
            if is_interrupt(error):
                raise
            with contextlib.suppress(Exception):
                sys.stderr.write(f"a log handler raised {type(error).__name__}: {msg}\n")


def get_logger(name: str) -> GuardedLogger:
    """Return the logger of this name, under a guard."""
    return GuardedLogger(logging.getLogger(name))


logger = get_logger("django_mqlite")
