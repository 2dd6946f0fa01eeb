"""Closing of connections when their thread ends, so that no dead thread holds the write lock.

Django's wrappers of connections refer to themselves, so they outlive their thread until Python
happens to collect its garbage; an open transaction would go on all that time.
"""

import os
import threading
from contextlib import suppress
from typing import Any
from weakref import WeakKeyDictionary, ref


class _Opened:
    """The connections of one thread; goes with it, because only the thread refers to it."""

    def __init__(self) -> None:
        self.connections: WeakKeyDictionary[Any, ref[Any]] = WeakKeyDictionary()
        self._pid = os.getpid()

    def __del__(self) -> None:
        if os.getpid() != self._pid:
            return  # forked: the connections are the parent's, and still in use there
        for connection, wrapper in list(self.connections.items()):
            if (owner := wrapper()) is None or not owner.allow_thread_sharing:
                with suppress(Exception):
                    connection.close()


class _Thread(threading.local):
    def __init__(self) -> None:
        self.opened = _Opened()


_thread = _Thread()


def close_with_thread(wrapper: Any, connection: Any) -> None:
    """Close `connection` when the thread of the caller dies, unless others may use it by then."""
    _thread.opened.connections[connection] = ref(wrapper)
