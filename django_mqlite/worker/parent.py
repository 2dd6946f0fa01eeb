"""The process that has started a worker."""

import os
import signal
import sys


class Parent:
    """Noticed when it is gone: a shell that was in between has died, and nobody will stop us.

    A worker that was meant to outlive its parent is told by what it was started with: `nohup`
    ignores SIGHUP, `setsid` makes a session of its own.
    """

    def __init__(self) -> None:
        self._pid = os.getppid()
        self._matters = sys.platform != "win32" and not _is_detached()

    @property
    def gone(self) -> bool:
        """Whether this process has been handed to another parent."""
        return self._matters and os.getppid() != self._pid


def _is_detached() -> bool:
    ignores_hangup = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    return ignores_hangup or os.getsid(0) == os.getpid()
