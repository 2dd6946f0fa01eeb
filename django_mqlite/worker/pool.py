"""The threads in which handlers run."""

from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread

from django.db import connections

from ..models import Message
from .executor import Finished


class Pool:
    """A fixed number of threads; each runs one message at a time.

    Daemon threads, because a handler that never returns must not keep the process alive after its
    message has been given back. That is why this is not a ThreadPoolExecutor.
    """

    def __init__(
        self, run: Callable[[Message], Finished], *, threads: int, on_finished: Callable[[], None]
    ) -> None:
        self._run = run
        self._on_finished = on_finished
        self._waiting: SimpleQueue[Message | None] = SimpleQueue()
        self._finished: deque[Finished] = deque()
        # By identity: a delivery whose lease was lost may still run when its message comes again.
        self._running: dict[int, Message] = {}
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
        """Run the message's handler in a free thread."""
        self._running[id(message)] = message
        self._waiting.put(message)

    def take_finished(self) -> list[Finished]:
        """What has ended since the last call; their threads are free again."""
        taken = []
        while self._finished:
            finished = self._finished.popleft()
            del self._running[id(finished.message)]
            taken.append(finished)
        return taken

    def close(self) -> None:
        """Let the idle threads end and close their connections; those at work are left alone."""
        for _ in self._threads:
            self._waiting.put(None)
        if not self._running:
            for thread in self._threads:
                thread.join()

    def _work(self) -> None:
        while (message := self._waiting.get()) is not None:
            self._finished.append(self._run(message))
            self._on_finished()
        connections.close_all()
