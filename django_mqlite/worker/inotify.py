"""Linux tells when a file's times are touched; three system calls, so no dependency for them."""

import ctypes
import os
import sys
from pathlib import Path

IN_ATTRIB = 0x4


def watch_attributes(path: Path) -> int | None:
    """A descriptor that becomes readable when the file's times change; None where there is none.

    The caller owns it: read it empty after each event, close it at the end.
    """
    if sys.platform != "linux":
        return None
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = int(libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
    if descriptor < 0:
        return None
    if libc.inotify_add_watch(descriptor, os.fsencode(path), IN_ATTRIB) < 0:
        os.close(descriptor)
        return None
    return descriptor
