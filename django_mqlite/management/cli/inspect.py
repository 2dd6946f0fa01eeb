"""Commands that inspect queues and messages: stats, list, show, why, peek and tail."""

import json
import os
import sys
from argparse import ArgumentParser
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from time import sleep
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import CommandError

from django_mqlite.arguments import MAX_TEXT
from django_mqlite.exceptions import MqliteError, format_error, is_interruption, stored_failures
from django_mqlite.formatting import format_progress, short_error, state_label
from django_mqlite.managers import MessageManager
from django_mqlite.message import encode_json
from django_mqlite.models import DeadLetter, Message, Queue, Schedule
from django_mqlite.timing import iso, moment
from django_mqlite.types import DeliveryTimes, Explanation, QueueOverview, ScheduleStatus, State

from . import schedules
from .arguments import Options, Subcommand, add_id, count, interval, sequence_number, state
from .output import NO_QUEUES, Output, beginning, cell, lines, shortened

# Messages as JSON

DOCUMENT = (
    "queue", "state", "priority", "blocked", "delivery_count", "interruptions",
    "uncounted_retries", "enqueued_at", "visible_at", "expires_at", "finished_at", "message_id",
    "unique_key", "correlation_id", "reply_to", "group_id", "subject", "content_type", "properties",
)  # fmt: skip
SUMMARY = (
    "id", "queue", "state", "priority", "group_id", "subject", "message_id", "correlation_id",
    "delivery_count", "enqueued_at", "visible_at", "locked_until", "finished_at",
    "dead_letter_reason", "error_class",
)  # fmt: skip
"""The columns that a list reads; none of them can be long."""
ERROR_TIMES = ("started_at", "failed_at")


def document(message: Message) -> dict[str, Any]:
    """Return a message as JSON, without the lock token, which grants the right to settle it."""
    return {
        "id": message.pk,
        **{name: getattr(message, name) for name in DOCUMENT},
        **_body_document(message),
        "errors": _errors(message.errors or []),
        "dead_letter_reason": message.dead_letter_reason,
        "dead_letter_description": message.dead_letter_description,
        "error_class": message.error_class,
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
    """Return the stored errors with ISO times; keep values from other programs unchanged."""
    if not isinstance(stored, list):
        return stored
    return [_error(error) if isinstance(error, dict) else error for error in stored]


def _error(stored: dict[str, Any]) -> dict[str, Any]:
    times = {name: stored[name] for name in ERROR_TIMES if isinstance(stored.get(name), int)}
    return stored | {name: iso(epoch_ms) for name, epoch_ms in times.items()}


# stats

STATS_HEADINGS = ("due since", "workers", "done/h", "failed/h", "paused")
CLEAR_SCREEN = "\x1b[2J\x1b[H"


def _add_stats_arguments(parser: ArgumentParser) -> None:
    text = "refresh every S seconds (2) until Ctrl-C"
    parser.add_argument("--watch", type=interval, nargs="?", const=2.0, metavar="S", help=text)


def _stats(options: Options, output: Output) -> None:
    manager = Queue.objects.db_manager(options["database"])

    def show() -> None:
        queues = manager.overview()
        document = {"queues": [_queue_document(queue) for queue in queues]}
        if output.as_json and options["watch"]:
            output.line(document, "")
        else:
            headings = ("queue", *map(state_label, State), *STATS_HEADINGS)
            output.answer_table(document, headings, map(_queue_row, queues), empty=NO_QUEUES)

    def refresh() -> None:
        if output.stdout.isatty() and not output.as_json:
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
        "retrying": queue.stats.retrying,
        "blocked": queue.stats.blocked,
        "blocked_by": queue.head.id if queue.head else None,
        "due_since": iso(queue.stats.due_since_ms),
        "workers": queue.workers,
        "slots": queue.slots,
        "busy": queue.busy,
        "completed_last_hour": queue.completed,
        "failed_last_hour": queue.failed,
        "dead_letters_last_hour": queue.stats.recent_dead_letters,
        "wait": _seconds(queue.wait),
        "run": _seconds(queue.run),
    }


def _seconds(times: DeliveryTimes | None) -> dict[str, float] | None:
    """Return the median and the 95th percentile in seconds."""
    if times is None:
        return None
    return {"median": times.median_ms / 1000, "p95": times.p95_ms / 1000}


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

LIST_COLUMNS = {
    "id": "id", "queue": "queue", "state": "state", "group": "group_id", "subject": "subject",
    "deliveries": "delivery_count", "enqueued": "enqueued_at", "reason": "dead_letter_reason",
    "error": "error_class",
}  # fmt: skip


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
    output.answer_table(
        {"messages": summaries, "next": page.next},
        tuple(LIST_COLUMNS),
        [_row(message, LIST_COLUMNS.values()) for message in rows],
        empty="There are no such messages.",
    )
    if page.next is not None and not output.as_json:
        output.note(f"For the next page, add --after {page.next}")


def _row(message: Message, names: Iterable[str]) -> list[Any]:
    """Return values of a message for a table; long texts are shortened."""
    return [_value(message, name) for name in names]


def _value(message: Message, name: str) -> Any:
    match name:
        case "state":
            return state_label(message.state)
        case "subject" | "dead_letter_description":
            return shortened(getattr(message, name))
        case "body":
            return beginning(message.body)
        case "last_error":
            return shortened(_last_error(message))
        case _:
            return getattr(message, name)


def _last_error(message: Message) -> str | None:
    recorded = stored_failures(message.errors)
    text = recorded[-1].get("message") if recorded else None
    return short_error(message.error_class, text)


# errors


def _add_errors_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("queue", nargs="?", metavar="QUEUE", help="default: all queues")
    parser.add_argument("--limit", type=count, default=20, metavar="N", help="at most N (20)")


def _errors_by_class(options: Options, output: Output) -> None:
    letters = DeadLetter.objects.db_manager(options["database"])
    counts = letters.count_by_error(options["queue"], limit=options["limit"])
    output.answer_table(
        {"errors": [count._asdict() for count in counts]},
        ("dead letters", "error", "reason"),
        [
            (count.dead_letters, shortened(count.error_class), shortened(count.reason))
            for count in counts
        ],
        empty="There are no dead letters.",
    )


# show and why

MAX_BODY = 4_000
FACTS = (
    "queue", "state", "subject", "priority", "group_id", "message_id", "unique_key",
    "correlation_id", "reply_to", "enqueued_at", "visible_at", "expires_at", "delivery_count",
    "interruptions", "uncounted_retries", "locked_by", "locked_until", "progress", "finished_at",
    "dead_letter_reason", "dead_letter_description", "content_type",
)  # fmt: skip


def _show(options: Options, output: Output) -> None:
    messages = Message.objects.db_manager(options["database"])
    id = sequence_number(messages, options["id"])
    message = messages.using(messages.database).filter(pk=id).first()
    explanation = messages.explain(id)
    if message is None:
        raise CommandError(_explained(id, explanation))
    full_document = {
        **document(message),
        "max_delivery_count": explanation.facts.get("max_delivery_count"),
        "locked_by": message.locked_by,
        "locked_until": message.locked_until,
        "progress": message.progress,
        "result": message.result,
        "why": {
            "code": explanation.code,
            "text": explanation.text,
            "facts": dict(explanation.facts),
        },
    }
    output.answer(full_document, "\n".join(_full_text(message, explanation)))


def _add_why_arguments(parser: ArgumentParser) -> None:
    text = "sequence number, message id, or name of a recurring schedule"
    parser.add_argument("id", metavar="ID", help=text)


def _why(options: Options, output: Output) -> None:
    if (status := _schedule(options)) is not None:
        why = status.explanation
        facts = {"code": why.code, "text": why.text, "facts": dict(why.facts)}
        output.answer({"schedule": status.name, **facts}, schedules.explained(status))
        return
    messages = Message.objects.db_manager(options["database"])
    other_names = ", and no recurring schedule has this name"
    id = sequence_number(messages, options["id"], other_names=other_names)
    explanation = messages.explain(id)
    output.answer(
        {
            "id": id,
            "code": explanation.code,
            "text": explanation.text,
            "facts": dict(explanation.facts),
        },
        _explained(id, explanation),
    )


def _schedule(options: Options) -> ScheduleStatus | None:
    """Return the schedule of this name, unless a message has the name as its id."""
    name, using = options["id"], options["database"]
    if (name.isascii() and name.isdecimal()) or len(name) > MAX_TEXT:
        return None
    messages = Message.objects.db_manager(using)
    if messages.using(messages.database).filter(message_id=name).exists():
        return None
    with suppress(MqliteError, ImproperlyConfigured, ValueError):
        return Schedule.objects.db_manager(using).status(name)
    return None


def _explained(id: int, explanation: Explanation) -> str:
    """Return the explanation with its subject, unless it names the message itself."""
    return lines(
        explanation.text if explanation.code == "never_enqueued" else f"#{id}: {explanation.text}"
    )


def _full_text(message: Message, explanation: Explanation) -> Iterator[str]:
    yield _explained(message.pk, explanation)
    for name in FACTS:
        value = getattr(message, name)
        if value not in (None, ""):
            yield f"  {_fact_label(name, message)}: {cell(_fact_text(name, value))}"
    if isinstance(message.properties, dict):
        for name, value in message.properties.items():
            yield f"  property {cell(name)}: {cell(value)}"
    elif message.properties is not None:
        yield from _block("properties", _pretty(message.properties))
    yield from _body_text(message)
    if message.result is not None:
        yield from _block("result", _pretty(message.result))
    for error in stored_failures(message.errors):
        yield from _failure(error)


def _fact_text(name: str, value: Any) -> Any:
    match name:
        case "state":
            return state_label(value)
        case "progress":
            return format_progress(value)
        case _:
            return value


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
    heading = f"delivery {error.get('delivery', '?')} {ended}, {worker}: {format_error(error)}"
    yield from _block(cell(heading), str(error.get("traceback") or ""))


def _block(heading: str, text: str) -> Iterator[str]:
    yield heading + ":" if text else heading
    if text:
        yield "\n".join(f"  {line}" for line in lines(text).split("\n"))


# peek

PEEK_COLUMNS = {
    "id": "id", "priority": "priority", "group": "group_id", "blocked": "blocked",
    "subject": "subject", "deliveries": "delivery_count", "enqueued": "enqueued_at", "body": "body",
}  # fmt: skip
DEAD_COLUMNS = {
    "id": "id", "reason": "dead_letter_reason", "description": "dead_letter_description",
    "subject": "subject", "deliveries": "delivery_count", "dead since": "finished_at",
    "last error": "last_error",
}  # fmt: skip


def _add_peek_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("queue", metavar="QUEUE")
    parser.add_argument("--dead", action="store_true", help="dead letters, oldest first")
    parser.add_argument("--limit", type=count, default=10, metavar="N", help="at most N (10)")


def _peek(options: Options, output: Output) -> None:
    queue, dead = options["queue"], options["dead"]
    model: type[Message] = DeadLetter if dead else Message
    messages = model.objects.db_manager(options["database"]).peek(queue, limit=options["limit"])
    columns = DEAD_COLUMNS if dead else PEEK_COLUMNS
    output.answer_table(
        {"queue": queue, "messages": [document(message) for message in messages]},
        tuple(columns),
        [_row(message, columns.values()) for message in messages],
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
    middle = _row(message, ("queue", "state", "group_id", "subject"))
    parts = (at, f"#{message.pk}", *middle, text or beginning(message.body))
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


def repeat(show: Callable[[], None], *, every: float) -> None:
    """Call `show` at intervals of `every` seconds, until Ctrl-C or until stdout is closed."""
    try:
        while True:
            show()
            sleep(every)
    except KeyboardInterrupt:
        return
    except BrokenPipeError:
        # The interpreter flushes stdout at exit, which would fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


# fmt: off
SUBCOMMANDS = (
    Subcommand("stats", "Count each queue's messages by state; show its workers and last hour.",
        _stats, _add_stats_arguments, "mqlite stats --watch"),
    Subcommand("list", "List messages by queue, state or group, or search for one.",
        _list, _add_list_arguments, "mqlite list orders --state dead-lettered"),
    Subcommand("errors", "Count dead letters by the class of their last error.",
        _errors_by_class, _add_errors_arguments, "mqlite errors orders"),
    Subcommand("show", "Show everything about a message, and why it has not run.",
        _show, add_id, "mqlite show 17"),
    Subcommand("why", "Explain why a message or a recurring schedule has not run.",
        _why, _add_why_arguments, "mqlite why 17"),
    Subcommand("peek", "Show the next messages of a queue, or its dead letters.",
        _peek, _add_peek_arguments, "mqlite peek orders --limit 3"),
    Subcommand("tail", "Show messages as they are enqueued or dead-lettered, until Ctrl-C.",
        _tail, _add_tail_arguments, "mqlite tail --dead"),
)
# fmt: on
