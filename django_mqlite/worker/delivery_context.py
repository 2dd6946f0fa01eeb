"""The context in which a delivery starts, and a thread of its own for its synchronous calls.

asgiref runs the thread-sensitive calls of a process, Django's ORM in async code among them, in one
thread. There deliveries would share their connections: one would roll back what another has open,
and wait for a thread that another occupies.
"""

import os
from collections.abc import Callable
from concurrent import futures
from contextvars import Context, copy_context
from threading import Lock
from typing import Any, TypeVar

from asgiref.sync import SyncToAsync, ThreadSensitiveContext
from django.db import connections
from django.utils import timezone, translation

from ..logs import CurrentMessage, current_message
from ..models import Message
from ..types import HandlerResult

T = TypeVar("T")


class DeliveryContexts:
    """The context variables, language and time zone of the worker, and its idle threads."""

    def __init__(self) -> None:
        self._context = copy_context()
        self._language = translation.get_language()
        self._time_zone = timezone.get_current_timezone()
        self._threads = SyncThreads()

    def new_context(self) -> Context:
        """Return a copy of the worker's context for one delivery to run in."""
        return self._context.copy()

    def enter(self, message: Message) -> "DeliveryThread":
        """Prepare the current context, a new one, for the delivery; return the thread it may use.

        The language and the time zone are set again because asgiref hides those of another thread.
        """
        if self._language:
            translation.activate(self._language)
        else:
            translation.deactivate_all()
        timezone.activate(self._time_zone)
        current_message.set(CurrentMessage.of(message))
        own_thread = DeliveryThread(self._threads)
        context = ThreadSensitiveContext()
        SyncToAsync.thread_sensitive_context.set(context)
        SyncToAsync.context_to_thread_executor[context] = own_thread
        return own_thread

    def close(self) -> None:
        """End the idle threads and close their connections."""
        self._threads.close()


class SyncThreads:
    """Idle threads, each with its open connections, for the next deliveries that need one."""

    def __init__(self) -> None:
        self._idle: list[futures.Executor] = []

    def take(self) -> futures.Executor:
        """Return the thread that was used last, or a new one."""
        try:
            return self._idle.pop()
        except IndexError:
            return futures.ThreadPoolExecutor(1, thread_name_prefix="mqlite-sync")

    def put_back(self, thread: futures.Executor) -> None:
        """Keep the thread for another delivery."""
        self._idle.append(thread)

    def close(self) -> None:
        """End the idle threads and close their connections."""
        while self._idle:
            thread = self._idle.pop()
            thread.submit(connections.close_all)
            thread.shutdown()


class DeliveryThread(futures.Executor):
    """The thread of one delivery's synchronous calls, taken at the first of them."""

    def __init__(self, threads: SyncThreads) -> None:
        self._threads = threads
        self._thread: futures.Executor | None = None
        self._guard = Lock()

    @property
    def is_used(self) -> bool:
        """Whether the delivery has made a synchronous call."""
        return self._thread is not None

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> futures.Future[T]:
        """Run a synchronous call after those before it."""
        with self._guard:
            self._thread = self._thread or self._threads.take()
            return self._thread.submit(end_forked_children, fn, *args, **kwargs)

    def end(self, act: Callable[[], T]) -> futures.Future[T]:
        """Run `act` after the last call, then leave the thread to another delivery.

        Calls of tasks that outlive their delivery are made in another thread.
        """
        with self._guard:
            thread, self._thread = self._thread or self._threads.take(), None
        future = thread.submit(act)
        future.add_done_callback(lambda _: self._threads.put_back(thread))
        return future


def end_forked_children(function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    """Call the function; a process that it forks and that leaves it, ends there."""
    pid = os.getpid()
    try:
        result = function(*args, **kwargs)
    except BaseException as error:
        exit_if_forked(pid, error)
        raise
    exit_if_forked(pid, result)
    return result


def exit_if_forked(pid: int, result: object) -> None:
    """End a process that a handler has forked, with the exit code that Python gives to `result`.

    It would go on as a second worker with the same leases. It ends at once, because it must not use
    the connections of the process `pid`, not even to close them.
    """
    if os.getpid() == pid:
        return
    error = result.error if isinstance(result, HandlerResult) else result
    match error:
        case SystemExit(code=None | 0):
            os._exit(0)
        case SystemExit(code=int(code)):
            os._exit(code & 0xFF)
        case BaseException():
            os._exit(1)
    os._exit(0)
