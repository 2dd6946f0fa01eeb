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
    """A thread and its message, until the finished delivery is taken.

    The consumer sets the message, not the thread, because the thread may die at any moment: an
    exception can be raised in it by other code.
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
        """Start a thread for this slot; it begins with the message in the inbox."""
        self.thread = Thread(target=self._work, args=(self,), name=self._name, daemon=True)
        self.thread.start()


class Pool:
    """A fixed number of slots, each a thread, or a task of the event loop for an async handler.

    Daemon threads, because a handler that never returns must not keep the process alive after its
    message has been given back. This rules out ThreadPoolExecutor.
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
        """Set when a message is started. The lease renewer waits for it while no handler runs."""
        self.busy_since = 0.0
        """The time at which `busy` was set, on the monotonic clock."""
        # Keyed by id(): after a lost lease two deliveries of one message may run at once.
        self._running: dict[int, Message] = {}
        self._given_up: set[int] = set()
        self._slots = [Slot(self._work, f"mqlite-handler-{number}") for number in range(threads)]

    @property
    def running(self) -> list[Message]:
        """The messages in a slot, including finished ones until take_finished() returns them."""
        return list(self._running.values())

    @property
    def awaited(self) -> list[Message]:
        """The messages in `running` that have not been given up."""
        return [message for message in self.running if id(message) not in self._given_up]

    def give_up(self, message: Message) -> None:
        """Do not wait for the message's handler when the process ends."""
        self._given_up.add(id(message))

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

    def cancel(self, message: Message, reason: BaseException) -> bool:
        """Cancel the message's handler if it is a coroutine, and return True; else False."""
        slot = self._slot_of(message)
        if self._loop is None or slot is None or not slot.in_loop:
            return False
        self._loop.cancel(message, reason)
        return True

    def _slot_of(self, message: Message) -> Slot | None:
        return next((slot for slot in self._slots if slot.message is message), None)

    def take_finished(self) -> list[DeliveryResult]:
        """Return the deliveries that ended since the last call, and free their slots."""
        self._replace_dead_threads()
        results = []
        while self._finished:
            finished = self._finished.popleft()
            slot = self._slot_of(finished.message)
            if slot is not None:  # None if the thread died after it had finished
                slot.message = None
                del self._running[id(finished.message)]
                self._given_up.discard(id(finished.message))
                results.append(finished)
        return results

    def close(self) -> None:
        """End idle threads and close their connections; do not wait for running handlers."""
        for slot in self._slots:
            slot.inbox.put(None)
        if not self._running:
            for slot in self._slots:
                slot.thread.join()
        if self._loop is not None:
            self._loop.close()

    def _replace_dead_threads(self) -> None:
        """Replace threads that were killed from outside; fail the deliveries they were running.

        A message that had not begun, runs in the event loop or has finished is not affected.
        """
        for slot in self._slots:
            if slot.thread.is_alive():
                continue
            message = slot.message
            if message is not None and not slot.has_begun and slot.inbox.empty():
                slot.inbox.put(message)
            elif message is not None and slot.has_begun and not slot.in_loop:
                logger.error("the handler thread of message #%s died", message.pk)
                self._finished.append(DeliveryResult(message=message, error=HandlerThreadDied()))
            slot.start_thread()

    def _work(self, slot: Slot) -> None:
        while (message := slot.inbox.get()) is not None:
            self._begin(slot, message)
        connections.close_all()

    def _begin(self, slot: Slot, message: Message) -> None:
        """Run the handler. is_async is called here because it may import the module of a task."""
        slot.has_begun = True
        try:
            is_async = self._loop is not None and self._is_async(message)
        except BaseException as error:  # noqa: BLE001 - a failed import fails the delivery
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
