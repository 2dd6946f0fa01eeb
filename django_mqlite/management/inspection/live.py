"""Repeated output until Ctrl-C."""

import os
import sys
import time
from collections.abc import Callable


def repeat(look: Callable[[], None], *, every: float) -> None:
    """`look`, rest for so many seconds, and so on; a reader that goes away ends it as well."""
    try:
        while True:
            look()
            rest(every)
    except KeyboardInterrupt:
        return
    except BrokenPipeError:
        # Or the interpreter complains when it flushes at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def rest(seconds: float) -> None:
    """A name of its own, for tests to end the loop with."""
    time.sleep(seconds)
