"""macOS and the BSDs tell when a file's times are touched, through an open descriptor of it."""

import os
import select
import sys
from pathlib import Path

if sys.platform != "win32" and sys.platform != "linux":

    class Kqueue:
        """Becomes readable when the times of this file change; OSError where that cannot be."""

        def __init__(self, path: Path) -> None:
            self._file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                self._queue = select.kqueue()
                self._queue.control([self._event()], 0, 0)
            except OSError:
                os.close(self._file)
                raise

        def _event(self) -> select.kevent:
            return select.kevent(
                self._file,
                filter=select.KQ_FILTER_VNODE,
                flags=select.KQ_EV_ADD | select.KQ_EV_CLEAR,
                fflags=select.KQ_NOTE_ATTRIB,
            )

        def fileno(self) -> int:
            """For selectors: a kqueue can itself be waited for."""
            return self._queue.fileno()

        def drain(self) -> None:
            """Forget what has happened, so that the next change is noticed."""
            self._queue.control(None, 16, 0)

        def close(self) -> None:
            """Give the descriptors back."""
            self._queue.close()
            os.close(self._file)
