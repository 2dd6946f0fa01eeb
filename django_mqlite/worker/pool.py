"""The threads in which handlers run."""

from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from threading import Event, Thread

from django.db import connections

from ..models import Message
from .event_loop import EventLoop
from .executor import Finished


class Pool:
    """A fixed number of slots: a thread each, or a task of the event loop for an async handler.

    Daemon threads, because a handler that never returns must not keep the process alive after its
    message has been given back. That is why this is not a ThreadPoolExecutor.
    """

    def __init__(
        self,
        run: Callable[[Message], Finished],
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
        self._waiting: SimpleQueue[Message | None] = SimpleQueue()
        self._finished: deque[Finished] = deque()
        self.busy = Event()
        """Set when a message is started; for whoever has nothing to do before."""
        # By identity: a delivery whose lease was lost may still run when its message comes again.
        self._running: dict[int, Message] = {}
        self._in_loop: set[int] = set()
        self._threads = [
            Thread(target=self._work, name=f"mqlite-handler-{number}", daemon=True)
            for number in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def running(self) -> list[Message]:
        """The messages that have a thread; those that have ended too, until they are taken."""
        return list(self._running.values())

    @property
    def free(self) -> int:
        """How many more messages could start at once."""
        return len(self._threads) - len(self._running)

    def start(self, message: Message) -> None:
        """Run the message's handler in a free thread, or as a task of the event loop."""
        self._running[id(message)] = message
        if not self.busy.is_set():
            self.busy.set()
        self._waiting.put(message)

    def cancel(self, message: Message, because: BaseException) -> bool:
        """Cancel the message's handler if it is a coroutine; a thread cannot be. Whether it is."""
        if self._loop is None or id(message) not in self._in_loop:
            return False
        self._loop.cancel(message, because)
        return True

    def take_finished(self) -> list[Finished]:
        """What has ended since the last call; their threads are free again."""
        taken = []
        while self._finished:
            finished = self._finished.popleft()
            del self._running[id(finished.message)]
            self._in_loop.discard(id(finished.message))
            taken.append(finished)
        return taken

    def close(self) -> None:
        """Let the idle threads end and close their connections; those at work are left alone."""
        for _ in self._threads:
            self._waiting.put(None)
        if not self._running:
            for thread in self._threads:
                thread.join()
        if self._loop is not None:
            self._loop.close()

    def _work(self) -> None:
        while (message := self._waiting.get()) is not None:
            self._begin(message)
        connections.close_all()

    def _begin(self, message: Message) -> None:
        """Asked in this thread which of the two it is: to know that, a module may be imported."""
        try:
            is_async = self._loop is not None and self._is_async(message)
        except BaseException as error:  # noqa: BLE001 - whatever the import does ends the delivery
            self._finish(Finished(message=message, error=error))
            return
        if is_async and self._loop is not None:
            self._in_loop.add(id(message))
            self._loop.start(message, self._finish)
        else:
            self._finish(self._run(message))

    def _finish(self, finished: Finished) -> None:
        self._finished.append(finished)
        self._on_finished()
