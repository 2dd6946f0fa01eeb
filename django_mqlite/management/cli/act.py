"""Commands that change messages and queues, such as enqueue, redrive, purge, cancel and pause."""

import json
import sys
from argparse import ArgumentParser
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.core.management.base import CommandError

from django_mqlite.formatting import state_label
from django_mqlite.managers import DeadLetterManager, MessageManager
from django_mqlite.models import DeadLetter, Message, Queue
from django_mqlite.types import UNFINISHED, BulkCount, Explanation, State
from django_mqlite.verbs.references import format_ids

from .arguments import (
    Options,
    Subcommand,
    add_ids,
    add_ids_or_queue,
    add_selection,
    add_yes,
    check_ids_or_queue,
    check_selection,
    duration,
    message_property,
    rate,
    sequence_numbers,
)
from .output import Output, as_command_error, lines, plural, require_terminal

# enqueue and publish

ENQUEUE_OPTIONS = (
    "delay", "ttl", "priority", "group_id", "subject", "message_id", "unique_key", "correlation_id",
    "reply_to",
)  # fmt: skip


def _add_enqueue_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("queue", metavar="QUEUE", help="name of the queue")
    _add_message_arguments(parser)


def _add_publish_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("topic", metavar="TOPIC", help="name of the topic")
    _add_message_arguments(parser)


def _add_message_arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("data", metavar="DATA", help="JSON, or text with --text; - reads stdin")
    add("--text", action="store_true", help="DATA is text, not JSON")
    add("--delay", type=duration, metavar="AGE", help="deliver after this long, such as 15m")
    add("--ttl", type=duration, metavar="AGE", help="expire after this long, such as 2d")
    add(
        "--priority",
        type=int,
        default=0,
        metavar="N",
        help="higher priorities are delivered first (0)",
    )
    add(
        "--group", dest="group_id", metavar="ID", help="deliver the messages of this group in order"
    )
    add("--subject", metavar="TEXT", help="short text about the message, shown in lists")
    add("--message-id", metavar="ID", help="id of your own, also for deduplication")
    add(
        "--unique-key",
        metavar="KEY",
        help="skip if an unfinished message of the queue has this key",
    )
    add("--correlation-id", metavar="ID", help="id that connects this message with others")
    add("--reply-to", metavar="NAME", help="queue or topic in which an answer is expected")
    add(
        "--property",
        dest="properties",
        type=message_property,
        action="append",
        metavar="NAME=VALUE",
        help="property of the message; may be repeated",
    )


def _enqueue(options: Options, output: Output) -> None:
    with as_command_error(TypeError, ValueError, RecursionError):
        message = Message.objects.db_manager(options["database"]).enqueue(
            options["queue"], _data(options), **_message_options(options)
        )
    output.answer(
        {
            "id": message.pk,
            "queue": message.queue,
            "duplicate": message.duplicate,
            "visible_at": None if message.duplicate else message.visible_at,
        },
        _stored(message),
    )


def _stored(message: Message) -> str:
    if message.duplicate:
        return f"Not enqueued: queue {message.queue} already has it as #{message.pk}."
    return f"#{message.pk} enqueued in queue {message.queue}."


def _publish(options: Options, output: Output) -> None:
    topic = options["topic"]
    with as_command_error(TypeError, ValueError, RecursionError):
        copies = Message.objects.db_manager(options["database"]).publish(
            topic, _data(options), **_message_options(options)
        )
    output.answer(
        {
            "topic": topic,
            "messages": [
                {"id": copy.pk, "queue": copy.queue, "duplicate": copy.duplicate} for copy in copies
            ],
        },
        "\n".join(map(_stored, copies))
        or f"Nothing was enqueued: no subscription of topic {topic} matches.",
    )


def _message_options(options: Options) -> dict[str, Any]:
    return {
        "properties": dict(options["properties"] or ()) or None,
        **{name: options[name] for name in ENQUEUE_OPTIONS},
    }


def _data(options: Options) -> Any:
    data = _read_stdin() if options["data"] == "-" else options["data"]
    return data if options["text"] else _parse_json(data)


def _read_stdin() -> str:
    try:
        return sys.stdin.read()
    except UnicodeDecodeError as error:
        raise CommandError(f"The data on stdin is not text: {error}.") from error


def _parse_json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise CommandError(
            f"DATA is not valid JSON: {error}. To enqueue text, pass --text."
        ) from error


# redrive and purge


SELECTIONS = ("ids", "limit", "older_than", "reason", "error_class")


def _add_redrive_arguments(parser: ArgumentParser) -> None:
    add_selection(parser)
    parser.add_argument("--into", metavar="QUEUE", help="redrive into another queue, with new ids")
    parser.add_argument("--rate", type=rate, metavar="N", help="spread deliveries: N per second")
    add_yes(parser)


def _redrive(options: Options, output: Output) -> None:
    check_selection(options)
    queue, into = options["queue"], options["into"]
    letters = DeadLetter.objects.db_manager(options["database"])
    destination = {"into": into, "rate": options["rate"]}
    if options["ids"]:
        ids = _checked_ids(letters, queue, options["ids"])
        _answer_bulk(queue, "redriven", letters.redrive(ids, **destination), output)
        return
    is_bounded = any(options[name] for name in SELECTIONS)
    count = _count(letters, options)
    redriven = BulkCount()
    if not is_bounded:
        _confirm_redrive(count, options, output)
    if is_bounded or count:
        with output.progress("dead letters", count) as progress:
            redriven = letters.redrive_queue(
                queue,
                # Without a bound no more than were confirmed, even if there are more by now.
                limit=options["limit"] if is_bounded else count,
                progress=progress,
                **_filters(options),
                **destination,
            )
    _answer_bulk(queue, "redriven", redriven, output)


def _confirm_redrive(count: int, options: Options, output: Output) -> None:
    """Ask before all dead letters of a queue are redriven."""
    require_terminal(options)
    queue, into = options["queue"], options["into"]
    if into:
        Queue.objects.db_manager(options["database"]).named(into)  # raises QueueNotFound
    if count:
        where = f" into queue {into}" if into else ""
        output.confirm(f"Redrive {_all(count)} of queue {queue}{where}?", options)


def _all(count: int) -> str:
    return "the only dead letter" if count == 1 else f"all {count:,} dead letters"


def _add_purge_arguments(parser: ArgumentParser) -> None:
    add_selection(parser)
    parser.add_argument("--all", action="store_true", help="all dead letters of the queue")
    add_yes(parser)


def _purge(options: Options, output: Output) -> None:
    _check_purge_selection(options)
    require_terminal(options)
    queue = options["queue"]
    letters = DeadLetter.objects.db_manager(options["database"])
    ids = _checked_ids(letters, queue, options["ids"]) if options["ids"] else None
    count = _count(letters, options) if ids is None else len(ids)
    purged = BulkCount()
    if count:
        question = f"Delete {plural(count, 'dead letter')} of queue {queue}? This is permanent."
        output.confirm(question, options)
        with output.progress("dead letters", count) as progress:
            if ids is not None:
                purged = letters.purge(ids)
            else:
                # At most the confirmed number, even if there are more dead letters by now.
                purged = letters.purge_queue(
                    queue, limit=count, progress=progress, **_filters(options)
                )
    _answer_bulk(queue, "purged", purged, output)


def _check_purge_selection(options: Options) -> None:
    check_selection(options, "all")
    selected = [name for name in (*SELECTIONS, "all") if options[name]]
    if not selected:
        raise CommandError(
            "Nothing is selected: pass --id, --limit, --older-than, --reason, --error-class or "
            "--all."
        )
    if options["all"] and len(selected) > 1:
        raise CommandError(
            "--all selects every dead letter: do not combine it with another selection."
        )


def _filters(options: Options) -> dict[str, Any]:
    return {name: options[name] for name in ("older_than", "reason", "error_class")}


def _count(letters: DeadLetterManager[DeadLetter], options: Options) -> int:
    matching = letters.matching(options["queue"], **_filters(options))
    return matching[: options["limit"]].count()


def _checked_ids(
    letters: DeadLetterManager[DeadLetter], queue: str, given: Sequence[str]
) -> list[int]:
    """Return the unique ids; raise CommandError unless all are dead letters of the queue."""
    ids = sequence_numbers(Message.objects.db_manager(letters.database), given)
    dead_ids = set(letters.matching(queue, ids=ids).values_list("pk", flat=True))
    others = [f"#{id}" for id in ids if id not in dead_ids]
    if others:
        raise CommandError(
            f"Not among the dead letters of queue {queue!r}: {', '.join(others)}. Nothing was "
            f"done. `manage.py mqlite peek {queue} --dead` lists them."
        )
    return sorted(dead_ids)


def _answer_bulk(queue: str, done: str, count: BulkCount, output: Output) -> None:
    text = f"{plural(count, 'dead letter')} of queue {queue} {done}."
    if count.referenced:
        text += f"\nKept because other tables refer to them: {format_ids(count.referenced)}"
    if count.duplicates:
        text += (
            "\nKept because an unfinished message has their unique key: "
            f"{format_ids(count.duplicates)}"
        )
    output.answer({"queue": queue, done: count, "kept": list(count.kept)}, text)


# Messages by id


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """A verb for single messages.

    `verb` returns the function that acts on an id. It is called before the confirmation, so that
    it can record the state that the user confirms. `confirm` is the question, with {count}.
    """

    name: str
    help: str
    example: str
    verb: Callable[[MessageManager[Any], Options], Callable[[int], bool]]
    done: str
    refused: Callable[[Explanation], str]
    confirm: str = ""
    key: str = ""
    """The key of the ids in JSON; by default `done`."""
    add_options: Callable[[ArgumentParser], None] = lambda parser: None
    in_queue: "InQueue | None" = None
    """How to act on messages of a queue, for a verb that can."""

    def subcommand(self) -> Subcommand:
        """Return the command that runs the verb."""
        return Subcommand(self.name, self.help, self._run, self._add_arguments, self.example)

    def _add_arguments(self, parser: ArgumentParser) -> None:
        if self.in_queue:
            add_ids_or_queue(parser, any_state=len(self.in_queue.states) > 1)
        else:
            add_ids(parser)
        if self.confirm or self.in_queue:
            add_yes(parser)
        self.add_options(parser)

    def _run(self, options: Options, output: Output) -> None:
        if self.in_queue:
            check_ids_or_queue(options)
            if options["queue"]:
                self.in_queue.run(options, output, done=self.done)
                return
        self._run_on_ids(options, output)

    def _run_on_ids(self, options: Options, output: Output) -> None:
        messages = Message.objects.db_manager(options["database"])
        ids = sequence_numbers(messages, options["ids"])
        act = self.verb(messages, {**options, "ids": ids})
        if self.confirm:
            output.confirm(self.confirm.format(count=plural(len(ids), "message")), options)
        results = {id: act(id) for id in ids}
        refused = {id: messages.explain(id) for id, acted in results.items() if not acted}
        document = {
            self.key or self.done: [id for id, acted in results.items() if acted],
            "refused": [
                {
                    "id": id,
                    "state": explanation.facts["state"],
                    "code": explanation.code,
                    "text": explanation.text,
                }
                for id, explanation in refused.items()
            ],
        }
        text = [
            f"#{id} not {self.done}: {_refusal(self, refused[id])}."
            if id in refused
            else f"#{id} {self.done}."
            for id in ids
        ]
        output.answer(document, "\n".join(text), failed=bool(refused))


@dataclass(frozen=True, slots=True, kw_only=True)
class InQueue:
    """A verb for the messages of a queue in some states. `confirm` is the question."""

    verb: Callable[..., int]
    """The method of the manager. With several states, it takes `state` and `error_class`."""
    states: Sequence[State]
    confirm: str

    def run(self, options: Options, output: Output, *, done: str) -> None:
        """Act on no more messages than were confirmed, even if there are more by then."""
        require_terminal(options)
        name = options["queue"]
        messages = Message.objects.db_manager(options["database"])
        selection = {
            option: options[option]
            for option in ("state", "error_class")
            if options.get(option) is not None
        }
        count = self._count(messages, options, **selection)
        changed = 0
        if count:
            question = self.confirm.format(count=plural(count, "message"), queue=name)
            output.confirm(question, options)
            with output.progress("messages", count) as progress:
                changed = self.verb(messages, name, limit=count, progress=progress, **selection)
        text = f"{plural(changed, 'message')} of queue {name} {done}."
        output.answer({"queue": name, done: changed}, text)

    def _count(
        self,
        messages: MessageManager[Any],
        options: Options,
        *,
        state: State | None = None,
        error_class: str | None = None,
    ) -> int:
        queue, limit = options["queue"], options["limit"]
        if error_class is not None:
            total = len(messages.unfinished_ids_of_class(queue, error_class, state=state))
        else:
            counts = counts_of_queue(queue, options)
            total = sum(counts[each] for each in self.states if state in (None, each))
        return total if limit is None else min(total, limit)


def counts_of_queue(queue: str, options: Options) -> Mapping[str, int]:
    """Return the number of the queue's messages by state. Raises QueueNotFound."""
    queues = Queue.objects.db_manager(options["database"])
    name = queues.named(queue).name
    return next(stats.counts for stats in queues.stats() if stats.queue == name)


def _refusal(action: Action, explanation: Explanation) -> str:
    """Return why a message was not changed, or how it ended if it no longer exists."""
    if explanation.facts["state"]:
        return action.refused(explanation)
    return lines(
        explanation.text if explanation.code == "never_enqueued" else f"it {explanation.text}"
    )


def _state(explanation: Explanation) -> str:
    retrying = explanation.facts["state"] == "scheduled" and explanation.facts["delivery_count"]
    return "it is retrying" if retrying else f"it is {state_label(explanation.facts['state'])}"


def _add_release_options(parser: ArgumentParser) -> None:
    text = "recorded in the errors of the message"
    parser.add_argument("--reason", default="released manually", metavar="TEXT", help=text)


def _release_refused(explanation: Explanation) -> str:
    if explanation.facts["state"] == "locked":
        return "it was claimed again in the meantime"
    return f"it has no lease, {_state(explanation)}"


def _release(messages: MessageManager[Any], options: Options) -> Callable[[int], bool]:
    """Release the current leases, and no later ones."""
    held = messages.using(messages.database).only("lock_token").in_bulk(options["ids"])
    seen = {id: message.lease_fingerprint or "" for id, message in held.items()}
    return lambda id: messages.release(id, seen=seen.get(id, ""), reason=options["reason"])


ACTIONS = (
    Action(
        name="cancel",
        help="Delete scheduled messages that were never delivered, permanently.",
        example="mqlite cancel 5 6",
        verb=lambda messages, options: messages.cancel,
        done="cancelled",
        refused=_state,
        confirm="Delete {count}? This is permanent.",
    ),
    Action(
        name="release",
        help="End the leases of messages, so that they can be claimed again.",
        example="mqlite release 5 --reason 'worker hangs'",
        verb=_release,
        done="released",
        refused=_release_refused,
        confirm="End the lease of {count}? Running handlers do not stop, so messages may be "
        "handled twice.",
        add_options=_add_release_options,
    ),
    Action(
        name="run-now",
        help="Make scheduled messages due now, including those that wait for a retry.",
        example="mqlite run-now 5",
        verb=lambda messages, options: messages.run_now,
        done="made due",
        refused=_state,
        key="due",
    ),
    Action(
        name="discard",
        help="End unfinished messages without delivering them again; they become dead letters.",
        example="mqlite discard --queue orders --state deferred",
        verb=lambda messages, options: messages.discard,
        done="discarded",
        refused=_state,
        confirm="Discard {count}? They become dead letters, and running handlers are cancelled or "
        "lose their lease.",
        in_queue=InQueue(
            verb=MessageManager.discard_queue,
            states=UNFINISHED,
            confirm="Discard {count} of queue {queue}? They become dead letters, and running "
            "handlers are cancelled or lose their lease.",
        ),
    ),
    Action(
        name="activate",
        help="Make deferred messages active again.",
        example="mqlite activate 5 6",
        verb=lambda messages, options: messages.activate,
        done="activated",
        refused=_state,
        in_queue=InQueue(
            verb=MessageManager.activate_queue,
            states=(State.DEFERRED,),
            confirm="Activate {count} of queue {queue}?",
        ),
    ),
)


# fmt: off
SUBCOMMANDS = (
    Subcommand("enqueue", "Enqueue a message.",
        _enqueue, _add_enqueue_arguments, "mqlite enqueue orders '{\"order\": 17}' --delay 15m"),
    Subcommand("publish", "Enqueue a copy of a message for each matching subscription of a topic.",
        _publish, _add_publish_arguments, "mqlite publish prices '{\"article\": 7}'"),
    Subcommand("redrive",
        "Put dead letters of a queue back to work: all, or by age, reason, error or id.",
        _redrive, _add_redrive_arguments,
        "mqlite redrive orders --reason MaxDeliveryCountExceeded --rate 10"),
    Subcommand("purge", "Delete dead letters of a queue permanently.",
        _purge, _add_purge_arguments, "mqlite purge orders --older-than 30d"),
    *(action.subcommand() for action in ACTIONS),
)
# fmt: on
