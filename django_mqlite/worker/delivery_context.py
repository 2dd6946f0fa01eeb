"""The context of a delivery, and its thread for synchronous calls.

asgiref runs all thread-sensitive calls of a process, including Django's ORM in async code, in one
thread. Deliveries would share that thread and its connections: one could roll back the transaction
of another, and would have to wait while another uses the thread.
"""

from collections import deque
from collections.abc import Callable
from concurrent import futures
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from functools import partial
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Any, TypeVar

from asgiref.sync import SyncToAsync, ThreadSensitiveContext
from django.db import connections
from django.utils import timezone, translation

from ..exceptions import HandlerThreadDied
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
        self._idle: list[SyncThread] = []

    def take(self) -> "SyncThread":
        """Return the most recently used thread, or a new one."""
        try:
            return self._idle.pop()
        except IndexError:
            return SyncThread()

    def put_back(self, thread: "SyncThread") -> None:
        """Keep the thread for another delivery, unless it has died."""
        if not thread.has_died:
            thread.has_begun = False
            self._idle.append(thread)

    def close(self) -> None:
        """End the idle threads and close their connections."""
        while self._idle:
            self._idle.pop().close()


@dataclass(slots=True)
class _Call:
    function: Callable[[], Any]
    future: futures.Future[Any] = field(default_factory=futures.Future)


def _make(call: _Call) -> None:
    if not call.future.set_running_or_notify_cancel():
        return
    try:
        result = call.function()
    except BaseException as error:  # noqa: BLE001 - returned to the delivery
        call.future.set_exception(error)
        del call  # the error's traceback refers to this frame, and so to the error
    else:
        call.future.set_result(result)


class SyncThread:
    """A thread that makes synchronous calls in their order.

    If an exception from outside ends the thread, calls of a delivery that has not begun are made in
    another one. Those of a delivery that has begun fail, because its connection, perhaps with an
    open transaction, has ended with the thread. In a ThreadPoolExecutor both would wait forever.
    """

    def __init__(self) -> None:
        self.has_begun = False
        """True once a call of the current delivery has begun."""
        self.has_died = False
        self._is_closed = False
        self._guard = Lock()
        self._unfinished: deque[_Call] = deque()
        self._start()

    def _start(self) -> None:
        self._unfinished = deque(call for call in self._unfinished if not call.future.done())
        self._inbox: SimpleQueue[_Call | None] = SimpleQueue()
        for call in self._unfinished:
            self._inbox.put(call)
        if self._is_closed:
            self._inbox.put(None)
        self._thread = Thread(target=self._work, name="mqlite-sync", daemon=True)
        self._thread.start()

    def submit(self, function: Callable[[], T]) -> futures.Future[T]:
        """Make the call after all earlier ones; raise HandlerThreadDied in a thread that died."""
        with self._guard:
            if self.has_died:
                raise HandlerThreadDied
            call = _Call(function)
            self._unfinished.append(call)
            self._inbox.put(call)
            return call.future

    def close(self) -> None:
        """Close the connections and end the thread."""
        self.submit(connections.close_all)
        with self._guard:
            self._is_closed = True
            self._inbox.put(None)
        self._thread.join(timeout=5)

    def _work(self) -> None:
        try:
            while (call := self._inbox.get()) is not None:
                self.has_begun = True
                _make(call)
                self._unfinished.popleft()
                del call
        except BaseException:  # noqa: BLE001 - raised from outside, at any moment
            self._replace()

    def _replace(self) -> None:
        """Start the next thread, or fail the unfinished calls of a delivery that has begun."""
        with self._guard:
            if not self.has_begun:
                self._start()
                return
            self.has_died = True
        for call in self._unfinished:
            if not call.future.done():
                call.future.set_exception(HandlerThreadDied())


class DeliveryThread(futures.Executor):
    """An executor for the synchronous calls of one delivery; the first call takes a thread."""

    def __init__(self, threads: SyncThreads) -> None:
        self._threads = threads
        self._thread: SyncThread | None = None
        self._guard = Lock()

    @property
    def is_used(self) -> bool:
        """True if the delivery has made a synchronous call."""
        return self._thread is not None

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> futures.Future[T]:
        """Run a synchronous call, after all earlier ones."""
        with self._guard:
            self._thread = self._thread or self._threads.take()
            return self._thread.submit(partial(end_forked_children, fn, *args, **kwargs))

    def end(self, clean_up: Callable[[], T]) -> futures.Future[T]:
        """Run `clean_up` after the last call, then release the thread to other deliveries.

        Tasks that outlive their delivery make their calls in another thread.
        """
        with self._guard:
            thread, self._thread = self._thread or self._threads.take(), None
        future = thread.submit(clean_up)
        future.add_done_callback(lambda _: self._threads.put_back(thread))
        return future
