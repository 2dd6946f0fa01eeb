"""Close connections when their thread ends, so that no dead thread holds the write lock.

Django's connection wrappers refer to themselves, so they outlive their thread until the next
garbage collection. An open transaction would hold the lock until then.
"""

import os
import threading
from contextlib import suppress
from typing import Any
from weakref import WeakKeyDictionary, ref


class _ThreadConnections:
    """The connections of one thread, deleted with the thread because nothing else refers to it."""

    def __init__(self) -> None:
        self.connections: WeakKeyDictionary[Any, ref[Any]] = WeakKeyDictionary()
        self._pid = os.getpid()

    def __del__(self) -> None:
        if os.getpid() != self._pid:
            return  # in a fork, the parent still uses these connections
        for connection, wrapper in list(self.connections.items()):
            if (owner := wrapper()) is None or not owner.allow_thread_sharing:
                with suppress(Exception):
                    connection.close()


class _Thread(threading.local):
    def __init__(self) -> None:
        self.opened = _ThreadConnections()


_thread = _Thread()


def close_with_thread(wrapper: Any, connection: Any) -> None:
    """Close `connection` when the calling thread ends, unless other threads may use it."""
    _thread.opened.connections[connection] = ref(wrapper)
