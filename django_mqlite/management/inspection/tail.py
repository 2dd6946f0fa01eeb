"""mqlite tail: messages as they come, or as they die."""

from argparse import ArgumentParser
from collections.abc import Iterator, Mapping
from typing import Any

from django_mqlite.managers import MessageManager
from django_mqlite.models import Message
from django_mqlite.types import State

from .documents import document
from .live import repeat
from .output import Output, beginning, cell, shortened

HELP = "Show messages as they are enqueued, or with --dead as they die, until Ctrl-C."
EVERY = 0.2
"""Seconds. What is enqueued, handled and deleted in between is not seen."""
PAGE = 100


def add_arguments(parser: ArgumentParser) -> None:
    """[QUEUE] [--dead]"""
    parser.add_argument("queue", nargs="?", metavar="QUEUE", help="default: all")
    parser.add_argument("--dead", action="store_true", help="dead letters, as they die")


def run(options: Mapping[str, Any], output: Output) -> None:
    """From now on, a line each."""
    messages = Message.objects.db_manager(options["database"])
    kind = Deaths if options["dead"] else Arrivals
    news = kind(messages, options["queue"])
    head = "dead letters" if options["dead"] else "messages"
    output.stderr.write(f"New {head} from now on; Ctrl-C ends.", style_func=str)

    def look() -> None:
        for message in news.take():
            output.line(document(message), _line(message))
        if news.may_be_more:
            output.stderr.write(f"These are the last {PAGE} to die; `mqlite list` has all.")

    repeat(look, every=EVERY)


def _line(message: Message) -> str:
    parts = (
        message.finished_at or message.enqueued_at,
        f"#{message.pk}",
        message.queue,
        message.state,
        message.group_id,
        shortened(message.subject),
        message.dead_letter_reason or beginning(message.body),
    )
    return "  ".join(cell(part) for part in parts)


class Arrivals:
    """The messages enqueued since the last poll."""

    may_be_more = False
    """Whether there was perhaps more than take() has given."""

    def __init__(self, messages: MessageManager[Message], queue: str | None) -> None:
        self._messages = messages
        self._queue = queue
        self._last = messages.newest_id()
        messages.arrivals(self._last, queue=queue)  # an unknown queue is told at once

    def take(self) -> Iterator[Message]:
        """In the order of their ids."""
        while True:
            found = self._messages.arrivals(self._last, queue=self._queue, limit=PAGE)
            for message in found:
                self._last = message.pk
                yield message
            if len(found) < PAGE:
                return


class Deaths:
    """The dead letters since the last poll, among the hundred newest."""

    may_be_more = False

    def __init__(self, messages: MessageManager[Message], queue: str | None) -> None:
        self._messages = messages
        self._queue = queue
        self._seen = set(self._latest())

    def take(self) -> Iterator[Message]:
        """In the order of their deaths."""
        latest = self._latest()
        new = [id for id in reversed(latest) if id not in self._seen]
        self._seen = set(latest)
        self.may_be_more = len(new) == PAGE
        rows = self._messages.using(self._messages.database).in_bulk(new)
        yield from (rows[id] for id in new if id in rows)

    def _latest(self) -> tuple[int, ...]:
        found = self._messages.find(queue=self._queue, state=State.DEAD_LETTERED, limit=PAGE)
        return found.ids
