"""Commands that list messages: list, errors, peek and tail."""

from argparse import ArgumentParser
from collections.abc import Iterator

from django_mqlite.formatting import state_label
from django_mqlite.managers import MessageManager
from django_mqlite.models import DeadLetter, Message
from django_mqlite.types import State

from .arguments import Options, Subcommand, count, state
from .messages import SUMMARY, columns, document, row
from .output import (
    Output,
    beginning,
    cell,
    repeat,
    shortened,
)
from .table import text_column

# list

LIST_COLUMNS = (
    "id", "queue", "state", "age", "due", "tries", "group", "subject", "error",
)  # fmt: skip


def _add_list_arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("queue", nargs="?", metavar="QUEUE", help="default: all queues")
    add("--state", type=state, metavar="STATE", help="only in this state, such as dead-lettered")
    add("--group", metavar="ID", help="only of this group")
    add(
        "--search",
        metavar="TEXT",
        help="sequence number, message id, correlation id or beginning of the subject",
    )
    add("--limit", type=count, default=50, metavar="N", help="messages per page (50)")
    add(
        "--after",
        metavar="PLACE",
        help="show the page at PLACE, as printed below the previous page",
    )


def _list(options: Options, output: Output) -> None:
    messages = Message.objects.db_manager(options["database"])
    page = messages.find(
        queue=options["queue"],
        state=options["state"],
        group=options["group"],
        text=options["search"],
        limit=options["limit"],
        after=options["after"],
    )
    by_id = messages.using(messages.database).only(*SUMMARY).in_bulk(page.ids)
    rows = [by_id[id] for id in page.ids if id in by_id]
    summaries = [{name: getattr(message, name) for name in SUMMARY} for message in rows]
    # A column that is the same in each row because of an option is left out.
    names = [name for name in LIST_COLUMNS if not options.get(name)]
    output.answer_table(
        {"messages": summaries, "next": page.next},
        columns(names),
        [row(message, names) for message in rows],
        empty="There are no such messages.",
    )
    if page.next is not None and not output.as_json:
        output.note(f"For the next page, add --after {page.next}")


# errors


def _add_errors_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("queue", nargs="?", metavar="QUEUE", help="default: all queues")
    parser.add_argument("--limit", type=count, default=20, metavar="N", help="at most N (20)")


def _errors_by_class(options: Options, output: Output) -> None:
    letters = DeadLetter.objects.db_manager(options["database"])
    counts = letters.count_by_error(options["queue"], limit=options["limit"])
    output.answer_table(
        {"errors": [count._asdict() for count in counts]},
        ("dead letters", text_column("error"), text_column("reason")),
        [
            (count.dead_letters, shortened(count.error_class), shortened(count.reason))
            for count in counts
        ],
        empty="There are no dead letters.",
    )


# peek

PEEK_COLUMNS = ("id", "priority", "age", "tries", "blocked", "group", "subject", "body")
DEAD_COLUMNS = ("id", "dead for", "tries", "group", "subject", "last error")


def _add_peek_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("queue", metavar="QUEUE", help="name of the queue")
    parser.add_argument("--dead", action="store_true", help="dead letters, oldest first")
    parser.add_argument("--limit", type=count, default=10, metavar="N", help="at most N (10)")


def _peek(options: Options, output: Output) -> None:
    queue, dead = options["queue"], options["dead"]
    model: type[Message] = DeadLetter if dead else Message
    messages = model.objects.db_manager(options["database"]).peek(queue, limit=options["limit"])
    names = DEAD_COLUMNS if dead else PEEK_COLUMNS
    output.answer_table(
        {"queue": queue, "messages": [document(message) for message in messages]},
        columns(names),
        [row(message, names) for message in messages],
        empty=f"Queue {queue} has no {'dead letters' if dead else 'messages to claim'}.",
    )


# tail

POLL_INTERVAL = 0.2
"""Seconds. Messages that are enqueued, handled and deleted between two polls are not shown."""
PAGE = 100


def _add_tail_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("queue", nargs="?", metavar="QUEUE", help="default: all queues")
    parser.add_argument("--dead", action="store_true", help="new dead letters only")


def _tail(options: Options, output: Output) -> None:
    messages = Message.objects.db_manager(options["database"])
    dead = options["dead"]
    new_messages = (NewDeadLetters if dead else Arrivals)(messages, options["queue"])
    output.note(f"Showing new {'dead letters' if dead else 'messages'} until Ctrl-C.")

    def show() -> None:
        for message in new_messages.take():
            output.line(document(message), _tail_line(message))
        if new_messages.may_have_more:
            output.note(
                f"Only the last {PAGE} dead letters are shown; `mqlite list` shows all of them."
            )

    repeat(show, every=POLL_INTERVAL)


def _tail_line(message: Message) -> str:
    at, text = message.finished_at or message.enqueued_at, message.dead_letter_reason
    state = state_label(message.state)
    facts = (message.queue, state, shortened(message.group_id), shortened(message.subject))
    parts = (at, f"#{message.pk}", *facts, text or beginning(message.body))
    return "  ".join(map(cell, parts))


class Arrivals:
    """The messages enqueued since the last poll."""

    may_have_more = False

    def __init__(self, messages: MessageManager[Message], queue: str | None) -> None:
        self._messages = messages
        self._queue = queue
        self._last = messages.newest_id()
        messages.arrivals(self._last, queue=queue)  # raises QueueNotFound now, not while polling

    def take(self) -> Iterator[Message]:
        """Yield the new messages in the order of their ids."""
        while True:
            page = self._messages.arrivals(self._last, queue=self._queue, limit=PAGE)
            for message in page:
                self._last = message.pk
                yield message
            if len(page) < PAGE:
                return


class NewDeadLetters:
    """The dead letters since the last poll, among the hundred newest."""

    may_have_more = False
    """True if there may be more new dead letters than take() returned."""

    def __init__(self, messages: MessageManager[Message], queue: str | None) -> None:
        self._messages = messages
        self._queue = queue
        self._seen = set(self._latest())

    def take(self) -> Iterator[Message]:
        """Yield the new dead letters in the order in which they were dead-lettered."""
        latest = self._latest()
        new = [id for id in reversed(latest) if id not in self._seen]
        self._seen = set(latest)
        self.may_have_more = len(new) == PAGE
        by_id = self._messages.using(self._messages.database).in_bulk(new)
        yield from (by_id[id] for id in new if id in by_id)

    def _latest(self) -> tuple[int, ...]:
        page = self._messages.find(queue=self._queue, state=State.DEAD_LETTERED, limit=PAGE)
        return page.ids


# fmt: off
SUBCOMMANDS = (
    Subcommand("list", "List messages by queue, state or group, or search for one.",
        _list, _add_list_arguments, "mqlite list orders --state dead-lettered"),
    Subcommand("errors", "Count dead letters by the class of their last error.",
        _errors_by_class, _add_errors_arguments, "mqlite errors orders"),
    Subcommand("peek", "Show the next messages of a queue, or its dead letters.",
        _peek, _add_peek_arguments, "mqlite peek orders --limit 3"),
    Subcommand("tail", "Show messages as they are enqueued or dead-lettered, until Ctrl-C.",
        _tail, _add_tail_arguments, "mqlite tail --dead"),
)
# fmt: on
