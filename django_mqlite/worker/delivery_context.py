"""The context of a delivery, and its thread for synchronous calls.

asgiref runs all thread-sensitive calls of a process, including Django's ORM in async code, in one
thread. Deliveries would share that thread and its connections: one could roll back the transaction
of another, and would have to wait while another uses the thread.
"""

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
from .forks import end_forked_children

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
        """Prepare the current context for a delivery; return the thread for its synchronous calls.

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
    """A pool of idle threads with open connections, for later deliveries."""

    def __init__(self) -> None:
        self._idle: list[futures.Executor] = []

    def take(self) -> futures.Executor:
        """Return the most recently used thread, or a new one."""
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
    """An executor for the synchronous calls of one delivery; the first call takes a thread."""

    def __init__(self, threads: SyncThreads) -> None:
        self._threads = threads
        self._thread: futures.Executor | None = None
        self._guard = Lock()

    @property
    def is_used(self) -> bool:
        """True if the delivery has made a synchronous call."""
        return self._thread is not None

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> futures.Future[T]:
        """Run a synchronous call, after all earlier ones."""
        with self._guard:
            self._thread = self._thread or self._threads.take()
            return self._thread.submit(end_forked_children, fn, *args, **kwargs)

    def end(self, clean_up: Callable[[], T]) -> futures.Future[T]:
        """Run `clean_up` after the last call, then release the thread to other deliveries.

        Tasks that outlive their delivery make their calls in another thread.
        """
        with self._guard:
            thread, self._thread = self._thread or self._threads.take(), None
        future = thread.submit(clean_up)
        future.add_done_callback(lambda _: self._threads.put_back(thread))
        return future
