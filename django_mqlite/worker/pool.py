"""The threads in which handlers run."""

import time
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from threading import Event, Thread

from django.db import connections

from ..exceptions import HandlerThreadDied
from ..guard import get_logger
from ..models import Message
from .event_loop import EventLoop
from .executor import DeliveryResult

logger = get_logger("django_mqlite.worker")


class Slot:
    """A thread and the message that it was given, until that is taken as finished.

    The message is noted by the consumer and not by the thread, which may die at any instant: an
    exception can be raised in it from outside.
    """

    def __init__(self, work: Callable[["Slot"], None], name: str) -> None:
        self.message: Message | None = None
        self.has_begun = False
        self.in_loop = False
        self.inbox: SimpleQueue[Message | None] = SimpleQueue()
        self._work = work
        self._name = name
        self.start_thread()

    def start_thread(self) -> None:
        """Start a thread; what is in the inbox is still to be begun."""
        self.thread = Thread(target=self._work, args=(self,), name=self._name, daemon=True)
        self.thread.start()


class Pool:
    """A fixed number of slots: a thread each, or a task of the event loop for an async handler.

    Daemon threads, because a handler that never returns must not keep the process alive after its
    message has been given back. That is why this is not a ThreadPoolExecutor.
    """

    def __init__(
        self,
        run: Callable[[Message], DeliveryResult],
        *,
        threads: int,
        on_finished: Callable[[], None],
        is_async: Callable[[Message], bool] = lambda message: False,
        loop: EventLoop | None = None,
    ) -> None:
        self._run = run
        self._on_finished = on_finished
        self._is_async = is_async
        self._loop = loop
        self._finished: deque[DeliveryResult] = deque()
        self.busy = Event()
        """Set when a message is started; for whoever has nothing to do before."""
        self.busy_since = 0.0
        """When that was, on the monotonic clock."""
        # By identity: a delivery whose lease was lost may still run when its message comes again.
        self._running: dict[int, Message] = {}
        self._slots = [Slot(self._work, f"mqlite-handler-{number}") for number in range(threads)]

    @property
    def running(self) -> list[Message]:
        """The messages that have a slot; those that have ended too, until they are taken."""
        return list(self._running.values())

    @property
    def free(self) -> int:
        """The number of messages that could start now."""
        return len(self._slots) - len(self._running)

    def start(self, message: Message) -> None:
        """Run the message's handler in a free thread, or as a task of the event loop."""
        slot = next(slot for slot in self._slots if slot.message is None)
        slot.message, slot.has_begun, slot.in_loop = message, False, False
        self._running[id(message)] = message
        if not self.busy.is_set():
            self.busy_since = time.monotonic()
            self.busy.set()
        slot.inbox.put(message)

    def cancel(self, message: Message, because: BaseException) -> bool:
        """Cancel the message's handler if it is a coroutine; a thread cannot be. Whether it is."""
        slot = self._slot_of(message)
        if self._loop is None or slot is None or not slot.in_loop:
            return False
        self._loop.cancel(message, because)
        return True

    def _slot_of(self, message: Message) -> Slot | None:
        return next((slot for slot in self._slots if slot.message is message), None)

    def take_finished(self) -> list[DeliveryResult]:
        """Return the deliveries that ended since the last call, and free their slots."""
        self._replace_dead()
        taken = []
        while self._finished:
            finished = self._finished.popleft()
            slot = self._slot_of(finished.message)
            if slot is not None:  # or the thread has died after it had finished
                slot.message = None
                del self._running[id(finished.message)]
                taken.append(finished)
        return taken

    def close(self) -> None:
        """Let the idle threads end and close their connections; those at work are left alone."""
        for slot in self._slots:
            slot.inbox.put(None)
        if not self._running:
            for slot in self._slots:
                slot.thread.join()
        if self._loop is not None:
            self._loop.close()

    def _replace_dead(self) -> None:
        """Start a thread for each that was killed from outside, and end the delivery it had begun.

        Other deliveries go on: the message waits for a thread, runs in the loop, or has finished.
        """
        for slot in self._slots:
            if slot.thread.is_alive():
                continue
            message = slot.message
            if message is not None and not slot.has_begun and slot.inbox.empty():
                slot.inbox.put(message)
            elif message is not None and slot.has_begun and not slot.in_loop:
                logger.error("the thread that handled message #%s has died", message.pk)
                self._finished.append(DeliveryResult(message=message, error=HandlerThreadDied()))
            slot.start_thread()

    def _work(self, slot: Slot) -> None:
        while (message := slot.inbox.get()) is not None:
            self._begin(slot, message)
        connections.close_all()

    def _begin(self, slot: Slot, message: Message) -> None:
        """Asked in this thread which of the two it is: to know that, a module may be imported."""
        slot.has_begun = True
        try:
            is_async = self._loop is not None and self._is_async(message)
        except BaseException as error:  # noqa: BLE001 - whatever the import does ends the delivery
            self._finish(DeliveryResult(message=message, error=error))
            return
        if is_async and self._loop is not None:
            slot.in_loop = True
            self._loop.start(message, self._finish)
        else:
            self._finish(self._run(message))

    def _finish(self, finished: DeliveryResult) -> None:
        self._finished.append(finished)
        self._on_finished()
