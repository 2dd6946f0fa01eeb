"""Commands that inspect queues and messages: stats, list, show, why, peek and tail."""

import json
import os
import sys
from argparse import ArgumentParser, ArgumentTypeError
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from time import sleep
from typing import Any

from django.core.management.base import CommandError

from django_mqlite.exceptions import failures, format_error, is_interruption
from django_mqlite.formatting import state_label
from django_mqlite.managers import MessageManager
from django_mqlite.message import encode_json
from django_mqlite.models import DeadLetter, Message, Queue
from django_mqlite.timing import iso, moment
from django_mqlite.types import Explanation, QueueOverview, State

from .arguments import Options, Subcommand, add_id, count, interval, state
from .output import Output, as_command_error, beginning, cell, lines, shortened

# Messages as JSON

DOCUMENT = (
    "queue", "state", "priority", "blocked", "delivery_count", "interruptions", "enqueued_at",
    "visible_at", "expires_at", "finished_at", "message_id", "correlation_id", "reply_to",
    "group_id", "subject", "content_type", "properties",
)  # fmt: skip
SUMMARY = (
    "id", "queue", "state", "priority", "group_id", "subject", "message_id", "correlation_id",
    "delivery_count", "enqueued_at", "visible_at", "locked_until", "finished_at",
    "dead_letter_reason",
)  # fmt: skip
"""The columns that a list reads; none of them can be long."""
ERROR_TIMES = ("started_at", "failed_at")


def document(message: Message) -> dict[str, Any]:
    """Return a message as JSON, without the lock token, which is the right to settle it."""
    return {
        "id": message.pk,
        **{name: getattr(message, name) for name in DOCUMENT},
        **_body_document(message),
        "errors": _errors(message.errors or []),
        "dead_letter_reason": message.dead_letter_reason,
        "dead_letter_description": message.dead_letter_description,
    }


def _body_document(message: Message) -> dict[str, Any]:
    """Return `data`, or `body_base64` if the body is bytes or does not match its content type."""
    try:
        data = message.data
        encode_json(data, "data")  # json.loads() accepts NaN, which is not JSON
    except (TypeError, ValueError, RecursionError):
        return {"data": None, "body_base64": b64encode(message.body).decode()}
    return {"data": data, "body_base64": None}


def _errors(stored: Any) -> Any:
    """Return the stored errors with ISO times; leave alone what another program wrote."""
    if not isinstance(stored, list):
        return stored
    return [_error(error) if isinstance(error, dict) else error for error in stored]


def _error(stored: dict[str, Any]) -> dict[str, Any]:
    times = {name: stored[name] for name in ERROR_TIMES if isinstance(stored.get(name), int)}
    return stored | {name: iso(epoch_ms) for name, epoch_ms in times.items()}


# stats

CLEAR_SCREEN = "\x1b[2J\x1b[H"


def _add_stats_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--watch",
        type=interval,
        nargs="?",
        const=2.0,
        metavar="S",
        help="refresh every S seconds (2) until Ctrl-C",
    )


def _stats(options: Options, output: Output) -> None:
    manager = Queue.objects.db_manager(options["database"])

    def show() -> None:
        queues = manager.overview()
        heads = (
            "queue", *map(state_label, State), "due since", "workers", "done/h", "failed/h",
            "paused",
        )  # fmt: skip
        output.answer_table(
            {"queues": [_queue_document(queue) for queue in queues]},
            heads,
            [_queue_row(queue) for queue in queues],
            empty="There are no queues. Declare them in MQLITE['QUEUES'] and run "
            "`manage.py migrate`.",
        )

    def refresh() -> None:
        if output.as_json:
            queues = manager.overview()
            output.line({"queues": [_queue_document(queue) for queue in queues]}, "")
            return
        if output.stdout.isatty():
            output.stdout.write(CLEAR_SCREEN, ending="")
        show()
        output.stdout.flush()

    if options["watch"] is None:
        show()
    else:
        repeat(refresh, every=options["watch"])


def _queue_document(queue: QueueOverview) -> dict[str, Any]:
    return {
        "queue": queue.stats.queue,
        "paused": queue.stats.paused,
        "counts": {state.value: queue.stats.counts[state] for state in State},
        "due_since": iso(queue.stats.due_since_ms),
        "workers": queue.workers,
        "slots": queue.slots,
        "completed_last_hour": queue.completed,
        "failed_last_hour": queue.failed,
    }


def _queue_row(queue: QueueOverview) -> list[Any]:
    stats = queue.stats
    return [
        stats.queue,
        *(stats.counts[state] for state in State),
        moment(stats.due_since_ms or 0),
        queue.workers,
        queue.completed,
        queue.failed,
        stats.paused,
    ]


# list

LIST_HEADS = ("id", "queue", "state", "group", "subject", "deliveries", "enqueued", "reason")


def _add_list_arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("queue", nargs="?", metavar="QUEUE", help="default: all queues")
    add("--state", type=state, metavar="STATE", help="in this state, such as dead-lettered")
    add("--group", metavar="ID", help="of this group")
    add(
        "--search",
        metavar="TEXT",
        help="with this sequence number, message id, correlation id or beginning of the subject",
    )
    add("--limit", type=count, default=50, metavar="N", help="messages per page (50)")
    add("--after", metavar="PLACE", help="show the next page; the previous page prints its PLACE")


def _list(options: Options, output: Output) -> None:
    messages = Message.objects.db_manager(options["database"])
    with as_command_error(ValueError):
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
    output.answer_table(
        {"messages": summaries, "next": page.next},
        LIST_HEADS,
        [_list_row(message) for message in rows],
        empty="There are no such messages.",
    )
    if page.next is not None and not output.as_json:
        output.note(f"For the next page, add --after {page.next}")


def _list_row(message: Message) -> list[Any]:
    return [
        message.pk,
        message.queue,
        state_label(message.state),
        message.group_id,
        shortened(message.subject),
        message.delivery_count,
        message.enqueued_at,
        message.dead_letter_reason,
    ]


# show and why

MAX_NAMED = 10
MAX_BODY = 4_000
FACTS = (
    "queue", "state", "subject", "priority", "group_id", "message_id", "correlation_id",
    "reply_to", "enqueued_at", "visible_at", "expires_at", "delivery_count", "interruptions",
    "locked_by", "locked_until", "finished_at", "dead_letter_reason", "dead_letter_description",
    "content_type",
)  # fmt: skip


def _show(options: Options, output: Output) -> None:
    messages = Message.objects.db_manager(options["database"])
    id = _sequence_number(messages, options["id"])
    message = messages.using(messages.database).filter(pk=id).first()
    why = messages.explain(id)
    if message is None:
        raise CommandError(_explained(id, why))
    full_document = {
        **document(message),
        "max_delivery_count": why.facts.get("max_delivery_count"),
        "locked_by": message.locked_by,
        "locked_until": message.locked_until,
        "result": message.result,
        "why": {"code": why.code, "text": why.text, "facts": dict(why.facts)},
    }
    output.answer(full_document, "\n".join(_full_text(message, why)))


def _why(options: Options, output: Output) -> None:
    messages = Message.objects.db_manager(options["database"])
    id = _sequence_number(messages, options["id"])
    why = messages.explain(id)
    output.answer(
        {"id": id, "code": why.code, "text": why.text, "facts": dict(why.facts)},
        _explained(id, why),
    )


def _sequence_number(messages: MessageManager[Any], given: str) -> int:
    """Return the sequence number: `given` itself if it is a number, otherwise a message id.

    Raises CommandError if no message has the message id, or several have it.
    """
    if given.isascii() and given.isdecimal():
        with as_command_error(ArgumentTypeError):
            return count(given)
    same = messages.using(messages.database).filter(message_id=given)
    matching = same.only("queue")[: MAX_NAMED + 1]
    if len(matching) == 1:
        return int(matching[0].pk)
    if matching:
        more = ", …" if len(matching) > MAX_NAMED else ""
        named = ", ".join(map(str, matching[:MAX_NAMED])) + more
        raise CommandError(
            f"Several messages have the message id {given!r}: {named}. Pass a sequence number."
        )
    raise CommandError(
        f"No message has the message id {given!r}. A deleted message is found by its sequence "
        "number only."
    )


def _explained(id: int, why: Explanation) -> str:
    """Return the explanation with its subject, unless it names the message itself."""
    return lines(why.text if why.code == "never_enqueued" else f"#{id}: {why.text}")


def _full_text(message: Message, why: Explanation) -> Iterator[str]:
    yield _explained(message.pk, why)
    for name in FACTS:
        value = getattr(message, name)
        if value not in (None, ""):
            text = state_label(value) if name == "state" else value
            yield f"  {_fact_label(name, message)}: {cell(text)}"
    if isinstance(message.properties, dict):
        for name, value in message.properties.items():
            yield f"  property {cell(name)}: {cell(value)}"
    elif message.properties is not None:
        yield from _block("properties", _pretty(message.properties))
    yield from _body_text(message)
    if message.result is not None:
        yield from _block("result", _pretty(message.result))
    for error in failures(message.errors):
        yield from _failure(error)


def _fact_label(name: str, message: Message) -> str:
    """Return the label of a column; a completed message has no lease, but keeps its last holder."""
    if name == "locked_by" and message.state == State.COMPLETED:
        return "completed by"
    return name.replace("_", " ")


def _body_text(message: Message) -> Iterator[str]:
    body = bytes(message.body)
    try:
        text = message.data if isinstance(message.data, str) else _pretty(message.data)
    except (TypeError, ValueError, RecursionError):
        text = body[: MAX_BODY // 3].hex(" ")
    cut = f", truncated to {MAX_BODY:,} characters" if len(text) > MAX_BODY else ""
    yield from _block(f"body, {len(body):,} bytes{cut}", text[:MAX_BODY])


def _pretty(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False, allow_nan=True)


def _failure(error: Mapping[str, Any]) -> Iterator[str]:
    worker = error.get("worker") or "an unnamed worker"
    ended = "was interrupted" if is_interruption(error) else "failed"
    head = f"delivery {error.get('delivery', '?')} {ended}, {worker}: {format_error(error)}"
    yield from _block(cell(head), str(error.get("traceback") or ""))


def _block(head: str, text: str) -> Iterator[str]:
    yield head + ":" if text else head
    if text:
        yield "\n".join(f"  {line}" for line in lines(text).split("\n"))


# peek

PEEK_HEADS = ("id", "priority", "group", "blocked", "subject", "deliveries", "enqueued", "body")
DEAD_HEADS = ("id", "reason", "description", "subject", "deliveries", "died", "last error")


def _add_peek_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("queue", metavar="QUEUE")
    parser.add_argument("--dead", action="store_true", help="dead letters, longest dead first")
    parser.add_argument("--limit", type=count, default=10, metavar="N", help="at most N (10)")


def _peek(options: Options, output: Output) -> None:
    queue, dead = options["queue"], options["dead"]
    model: type[Message] = DeadLetter if dead else Message
    messages = model.objects.db_manager(options["database"]).peek(queue, limit=options["limit"])
    output.answer_table(
        {"queue": queue, "messages": [document(message) for message in messages]},
        DEAD_HEADS if dead else PEEK_HEADS,
        [_dead_row(message) if dead else _peek_row(message) for message in messages],
        empty=f"Queue {queue} has no {'dead letters' if dead else 'messages to claim'}.",
    )


def _peek_row(message: Message) -> list[Any]:
    return [
        message.pk,
        message.priority,
        message.group_id,
        message.blocked,
        shortened(message.subject),
        message.delivery_count,
        message.enqueued_at,
        beginning(message.body),
    ]


def _dead_row(message: Message) -> list[Any]:
    last_error = failures(message.errors)[-1].get("message") if message.errors else None
    return [
        message.pk,
        message.dead_letter_reason,
        shortened(message.dead_letter_description),
        shortened(message.subject),
        message.delivery_count,
        message.finished_at,
        shortened(last_error),
    ]


# tail

POLL_INTERVAL = 0.2
"""Seconds. Messages that are enqueued, handled and deleted in between are not seen."""
PAGE = 100


def _add_tail_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("queue", nargs="?", metavar="QUEUE", help="default: all queues")
    parser.add_argument("--dead", action="store_true", help="dead letters, as they die")


def _tail(options: Options, output: Output) -> None:
    messages = Message.objects.db_manager(options["database"])
    dead = options["dead"]
    news = (Deaths if dead else Arrivals)(messages, options["queue"])
    output.note(f"Showing new {'dead letters' if dead else 'messages'} until Ctrl-C.")

    def show() -> None:
        for message in news.take():
            output.line(document(message), _tail_line(message))
        if news.may_be_more:
            output.note(f"Only the last {PAGE} dead letters are shown; `mqlite list` has them all.")

    repeat(show, every=POLL_INTERVAL)


def _tail_line(message: Message) -> str:
    parts = (
        message.finished_at or message.enqueued_at,
        f"#{message.pk}",
        message.queue,
        state_label(message.state),
        message.group_id,
        shortened(message.subject),
        message.dead_letter_reason or beginning(message.body),
    )
    return "  ".join(cell(part) for part in parts)


class Arrivals:
    """The messages enqueued since the last poll."""

    may_be_more = False

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


class Deaths:
    """The dead letters since the last poll, among the hundred newest."""

    may_be_more = False
    """True if more messages may have died than take() returned."""

    def __init__(self, messages: MessageManager[Message], queue: str | None) -> None:
        self._messages = messages
        self._queue = queue
        self._seen = set(self._latest())

    def take(self) -> Iterator[Message]:
        """Yield the new dead letters in the order of their deaths."""
        latest = self._latest()
        new = [id for id in reversed(latest) if id not in self._seen]
        self._seen = set(latest)
        self.may_be_more = len(new) == PAGE
        by_id = self._messages.using(self._messages.database).in_bulk(new)
        yield from (by_id[id] for id in new if id in by_id)

    def _latest(self) -> tuple[int, ...]:
        page = self._messages.find(queue=self._queue, state=State.DEAD_LETTERED, limit=PAGE)
        return page.ids


def repeat(show: Callable[[], None], *, every: float) -> None:
    """Call `show` every so many seconds, until Ctrl-C or until the reader of stdout has left."""
    try:
        while True:
            show()
            sleep(every)
    except KeyboardInterrupt:
        return
    except BrokenPipeError:
        # The interpreter flushes stdout at exit, which would fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


SUBCOMMANDS = (
    Subcommand(
        "stats",
        help="Count the messages of each queue by state; show its workers and its last hour.",
        example="mqlite stats --watch",
        add_arguments=_add_stats_arguments,
        run=_stats,
    ),
    Subcommand(
        "list",
        help="List messages by queue, state or group, or search for one.",
        example="mqlite list orders --state dead-lettered",
        add_arguments=_add_list_arguments,
        run=_list,
    ),
    Subcommand(
        "show",
        help="Show a message: properties, lease, body, failed deliveries, and why it has not run.",
        example="mqlite show 17",
        add_arguments=add_id,
        run=_show,
    ),
    Subcommand(
        "why",
        help="Explain why a message has not run, what holds it, or what became of it.",
        example="mqlite why 17",
        add_arguments=add_id,
        run=_why,
    ),
    Subcommand(
        "peek",
        help="Show the next messages of a queue, or its dead letters, without claiming them.",
        example="mqlite peek orders --limit 3",
        add_arguments=_add_peek_arguments,
        run=_peek,
    ),
    Subcommand(
        "tail",
        help="Show messages as they are enqueued, or as they become dead letters, until Ctrl-C.",
        example="mqlite tail --dead",
        add_arguments=_add_tail_arguments,
        run=_tail,
    ),
)
