"""Linux tells when a file's times are touched; three system calls, so no dependency for them."""

import contextlib
import ctypes
import os
from pathlib import Path

IN_ATTRIB = 0x4


class Inotify:
    """Becomes readable when the times of this file change; OSError where that cannot be."""

    def __init__(self, path: Path) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        self._descriptor = int(libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
        if self._descriptor < 0:
            raise OSError(ctypes.get_errno(), "inotify_init1")
        if libc.inotify_add_watch(self._descriptor, os.fsencode(path), IN_ATTRIB) < 0:
            self.close()
            raise OSError(ctypes.get_errno(), "inotify_add_watch", str(path))

    def fileno(self) -> int:
        """For selectors."""
        return self._descriptor

    def drain(self) -> None:
        """Forget what has happened, so that the next change is noticed."""
        with contextlib.suppress(BlockingIOError):
            os.read(self._descriptor, 4096)

    def close(self) -> None:
        """Give the descriptor back."""
        os.close(self._descriptor)
