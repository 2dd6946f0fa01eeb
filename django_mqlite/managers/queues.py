"""Create, configure, pause, count."""

from functools import partial
from typing import TYPE_CHECKING, Any

from django.core.exceptions import ImproperlyConfigured
from django.db import connections, transaction

from .. import clock
from ..conf import get_settings, queue_config
from ..doorbell import ring
from ..names import checked_name
from ..store import queues
from ..transactions import write_transaction
from ..types import QueueConfig, QueueStats
from .base import VerbManager

if TYPE_CHECKING:
    from ..models import Queue


class QueueManager(VerbManager["Queue"]):
    """Create, configure, pause, count."""

    def create_queue(self, name: str, **options: Any) -> "Queue":
        """Create the queue `name`, or bring it to `options`, which are those of MQLITE['QUEUES'].

        Raises ValueError for a name that cannot be one and ImproperlyConfigured for a wrong option,
        also for leaving or entering strict_fifo while messages are unfinished.
        """
        self.declare(name, queue_config(options, f"queue {name!r}"))
        return self.get(name=name)

    def sync(self) -> list[str]:
        """Bring the queues declared in settings into the database; the names of those that changed.

        Queues that are no longer declared stay, with their messages.
        """
        declared = get_settings().queues.items()
        return [name for name, config in declared if self.declare(name, config)]

    def declare(self, name: str, config: QueueConfig) -> bool:
        """Create the queue or bring its row to `config`; whether anything had to change."""
        checked_name(name)
        with write_transaction(self.using_alias) as connection:
            held = queues.ordering_held(connection, name)
            if held is not None and _changes_line(held, config.ordering_mode):
                raise ImproperlyConfigured(
                    f"Queue {name!r} is {held[0]} and has messages standing in that order; it can "
                    f"become {config.ordering_mode} once it is empty."
                )
            return queues.declare_queue(connection, name, config, now=clock.now_ms())

    def set_paused(self, queue: "Queue", paused: bool) -> bool:
        """Pause or resume; whether that was a change."""
        with write_transaction(self.using_alias) as connection:
            changed = queues.pause_queue(connection, queue.pk, paused=paused, now=clock.now_ms())
            transaction.on_commit(
                partial(ring, self.using_alias), using=self.using_alias, robust=True
            )
        queue.paused = paused
        return changed

    def stats(self) -> list[QueueStats]:
        """The depth of every queue by state, by name."""
        return queues.queue_stats(connections[self.using_alias])


def _changes_line(held: tuple[str, bool], ordering_mode: str) -> bool:
    """Strict or not decides which line a message stands in, and that is written in the messages."""
    mode, has_messages = held
    return has_messages and (mode == "strict_fifo") != (ordering_mode == "strict_fifo")
