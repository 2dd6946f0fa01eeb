"""Exceptions, and the text of an error that is stored with a failed delivery."""

import copyreg
import json
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import groupby
from typing import Any, Literal, TypeGuard

from .guard import call_guarded, safe_repr
from .names import suggestion_sentence
from .timing import milliseconds


class Restorable(Exception):
    """An exception that can be pickled and copied, whatever arguments its __init__ takes."""

    def __reduce__(self) -> tuple[Any, ...]:
        return copyreg.__newobj__, (type(self), *self.args), self.__dict__  # type: ignore[attr-defined]


class MqliteError(Restorable):
    """Base class of the errors that this package raises."""


class QueueNotFound(MqliteError):
    """The queue does not exist. Nothing was written, and no queue is created automatically."""

    def __init__(self, queue: str, known: Iterable[str] = ()) -> None:
        self.queue = queue
        super().__init__(
            f"There is no queue {queue!r} in this database."
            f"{suggestion_sentence(queue, known)} Declare it "
            "in MQLITE['QUEUES'] and run `manage.py migrate`, or create it with "
            "Queue.objects.create_queue()."
        )


class MessageTooLarge(MqliteError):
    """The body is over MQLITE['MAX_BODY_BYTES']."""

    def __init__(self, size: int, limit: int) -> None:
        self.size = size
        self.limit = limit
        super().__init__(
            f"A body of {size:,} bytes is over the limit of {limit:,}. Store the content elsewhere "
            "and enqueue a reference, or raise MQLITE['MAX_BODY_BYTES']."
        )


class GroupRequired(MqliteError):
    """A group_fifo queue orders messages by group, so each message needs a `group_id`.

    `dead_letter` is the id of the dead letter that cannot be redriven, None for a new message.
    """

    def __init__(self, queue: str, *, dead_letter: int | None = None) -> None:
        self.queue = queue
        self.dead_letter = dead_letter
        super().__init__(
            f"Queue {queue!r} is group_fifo: pass group_id=…."
            if dead_letter is None
            else f"Queue {queue!r} is group_fifo, and dead letter #{dead_letter} has no group_id: "
            "redrive it into another queue, or exclude it."
        )


class PriorityRefused(MqliteError):
    """A priority would break the order that a `group_id` or a strict_fifo queue promises."""

    def __init__(self, queue: str) -> None:
        self.queue = queue
        super().__init__(
            f"Queue {queue!r}: priority cannot be combined with a group_id or with strict_fifo, "
            "both of which promise an order."
        )


class DuplicateConflict(MqliteError):
    """The key was already used for different data within the queue's deduplication window.

    The data is the body, its content type and, for a task, the path of its function. `original` is
    the id of the message that was stored with the key.
    """

    def __init__(self, queue: str, message_id: str | None, original: int) -> None:
        self.queue = queue
        self.message_id = message_id
        self.original = original
        super().__init__(
            f"Queue {queue!r} already received message_id {message_id!r} with different data, as "
            f"message #{original}. Use a different message_id for each message."
        )


class NameConflict(MqliteError):
    """Queues, subscriptions and topics share one namespace, and this name is taken."""

    def __init__(self, name: str, taken_by: str) -> None:
        self.name = name
        super().__init__(
            f"The name {name!r} is taken by {taken_by}; choose another one. To configure the "
            "queue of a subscription, call Queue.objects.configure() instead of declaring it in "
            "MQLITE['QUEUES']."
        )


class QueueNotDeletable(MqliteError):
    """The queue has work, belongs to a subscription, or is declared in settings."""

    def __init__(self, queue: str, reason: str) -> None:
        self.queue = queue
        super().__init__(f"Queue {queue!r} was not deleted: {reason}.")


class TopicNotFound(MqliteError):
    """The topic has no subscription, so there is no queue to publish to."""

    def __init__(self, topic: str, known: Iterable[str] = ()) -> None:
        self.topic = topic
        super().__init__(
            f"There is no topic {topic!r} in this database."
            f"{suggestion_sentence(topic, known)} A topic is "
            "the set of its subscriptions: create one with Subscription.objects.subscribe()."
        )


class ScheduleNotFound(MqliteError):
    """The project has no recurring schedule of this name."""

    def __init__(self, name: str, known: Iterable[str] = ()) -> None:
        self.name = name
        super().__init__(
            f"There is no schedule {name!r}.{suggestion_sentence(name, known)} Declare it in "
            "MQLITE['SCHEDULES'] or with @periodic."
        )


class AccessKeyExists(MqliteError):
    """The name of an access key is taken, even if that key was revoked or has expired."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(
            f"There is an access key {name!r} already: choose another name. A revoked key keeps "
            "its name, so that the list shows what it was."
        )


class AccessKeyNotFound(MqliteError):
    """There is no access key of this name."""

    def __init__(self, name: str, known: Iterable[str] = ()) -> None:
        self.name = name
        super().__init__(
            f"There is no access key {name!r}.{suggestion_sentence(name, known)} "
            "`manage.py mqlite keys` lists them."
        )


LeaseVerb = Literal["complete", "abandon", "reject", "defer", "renew", "set the progress of"]
"""A verb that needs a lease."""


class LockLost(MqliteError):
    """The lease has ended (expired, settled, released, discarded), or another one replaced it.

    Nothing was written. Another worker has the message, or will soon: do not retry.
    """

    def __init__(self, queue: str, id: int | None, verb: LeaseVerb) -> None:
        self.queue = queue
        self.id = id
        self.verb = verb
        super().__init__(
            f"Cannot {verb} message #{id} of queue {queue!r}: this lease has ended. Another worker "
            "may have the message."
        )


class MessageReferenced(MqliteError):
    """A message cannot be deleted, because a foreign key of another table refers to it.

    Nothing was written. `tables` has the names of the tables that refer to messages.
    """

    def __init__(self, verb: str, tables: Sequence[str]) -> None:
        self.verb = verb
        self.tables = tuple(tables)
        super().__init__(
            f"{verb}() cannot delete a message that a row of {' or '.join(tables)} refers to. "
            "Delete that row first, use ON DELETE CASCADE or SET NULL, or store the message's id "
            "without a foreign key."
        )


class UniqueKeyTaken(MqliteError):
    """A dead letter cannot be redriven, because an unfinished message has its unique key.

    Nothing was written. `holder` is the id of that message.
    """

    def __init__(self, id: int, unique_key: str, holder: int) -> None:
        self.id = id
        self.unique_key = unique_key
        self.holder = holder
        super().__init__(
            f"Dead letter #{id} was not redriven: the unfinished message #{holder} has its "
            f"unique_key {unique_key!r}."
        )


class TransactionRefused(MqliteError):
    """claim() was called inside atomic(), where a rollback would undo a lease that is in use."""

    def __init__(self) -> None:
        super().__init__(
            "claim() cannot run inside transaction.atomic(): a rollback would undo the lease while "
            "its message is being handled. Claim first, then open the transaction; settling inside "
            "it is fine."
        )


class NoHandler(MqliteError):
    """A worker claimed a message for which there is no handler."""

    def __init__(self, queue: str, content_type: str | None) -> None:
        self.queue = queue
        super().__init__(
            f"Queue {queue!r} has no handler for a message of type {content_type}. Write one with "
            f"@handler({queue!r}) in the `handlers` module of an installed app or one of "
            "MQLITE['HANDLERS']."
        )


class NothingHasRun(MqliteError):
    """A handler returned a generator or a coroutine instead of running it."""

    def __init__(self, returned: object) -> None:
        kind = type(returned).__name__
        super().__init__(
            f"the handler returned a {kind} whose body has not run: iterate over a generator or "
            "await a coroutine before the handler returns"
        )


class HandlersNotImported(MqliteError):
    """A module of handlers raises an error when it is imported, so no worker can start."""


class DeliveryFailed(MqliteError):
    """The error of a delivery that was abandoned with a text instead of an exception."""


class DeadLettered(MqliteError):
    """The reason of a dead letter that did not fail in a delivery."""


class HandlerThreadDied(MqliteError):
    """An exception from outside ended the thread of the handler."""

    def __init__(self) -> None:
        super().__init__("an exception from outside ended the thread of the handler")


class TransactionLeftOpen(MqliteError):
    """A handler returned with an open transaction of its own, which was rolled back.

    Its writes are lost, so the delivery has failed.
    """

    def __init__(self, aliases: Iterable[str]) -> None:
        databases = ", ".join(map(repr, aliases))
        super().__init__(f"the handler left a transaction open on {databases}: rolled back")


class LeaseExpired(MqliteError):
    """The lease expired: the worker neither settled nor renewed it in time."""


class LeaseReleased(MqliteError):
    """The lease was released by an operator."""


class Discarded(MqliteError):
    """The message was discarded before it was completed, so it is not delivered again."""


class Interrupted(MqliteError):
    """The worker had to stop before the handler returned."""


class WorkerDied(MqliteError):
    """The process of the worker died."""


class SchemaVersionMismatch(MqliteError):
    """The tables in the database belong to a newer release, which this code does not support."""

    def __init__(self, found: str, expected: str) -> None:
        self.found = found
        self.expected = expected
        super().__init__(
            f"The queue's tables have schema {found}, and this release supports {expected}. "
            "Upgrade django-mqlite, or migrate back with the newer release first."
        )


class Reject(Restorable):
    """Raise this in a handler to dead-letter a message that can never succeed.

    `reason` is a short, stable name to search for; `description` is for people.
    """

    def __init__(self, reason: str, description: str = "") -> None:
        self.reason = reason
        self.description = description
        super().__init__(f"{reason}: {description}" if description else reason)


class Retry(Restorable):
    """Raise this in a handler to try again after `delay` (a timedelta or seconds).

    The delay replaces the queue's backoff. The delivery counts: at the delivery limit the message
    becomes a dead letter.

    With `counts=False` the delivery does not count, for a handler that cannot start yet. It needs a
    `delay` above 0. The message is retried until its time to live is over; without one, only the
    first 1,000 such retries are not counted.

    Raises TypeError or ValueError for an invalid `delay` or `counts`.
    """

    def __init__(
        self, message: str = "", *, delay: timedelta | float = 0, counts: bool = True
    ) -> None:
        milliseconds(delay, "Retry(delay=…)")
        if not isinstance(counts, bool):
            raise TypeError(f"counts must be a bool, not {safe_repr(counts)}")
        if not counts and not delay:
            raise ValueError(
                "Retry(counts=False) needs a delay above 0, so that the message is not delivered "
                "again and again without a pause"
            )
        self.delay = delay
        self.counts = counts
        super().__init__(message or "retry requested")


MAX_TEXT = 1_000
MAX_TRACEBACK = 8_000
MAX_FRAMELESS = 2_000
"""Characters of a traceback between two frames: messages, notes and chained causes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorDetails:
    """The texts of an error, evaluated once; `short` fits on one line."""

    kind: str
    message: str
    traceback: str
    short: str


def failure_json(error: BaseException | str, **facts: Any) -> str:
    """Return an error as JSON: class path, message, traceback and `facts`, of limited size."""
    return details_json(describe_error(error), **facts)


def details_json(error: ErrorDetails, **facts: Any) -> str:
    """Return an error that describe_error() has described as JSON, with `facts`."""
    texts = {"class": error.kind, "message": error.message, "traceback": error.traceback}
    return json.dumps(texts | facts)


def describe_error(error: BaseException | str) -> ErrorDetails:
    """Return the texts of the error. Call this outside a transaction: `__str__` is foreign code.

    Never raises: a broken `__str__`, NUL, lone surrogates or ten megabytes of text must not keep a
    message from being settled.
    """
    kind = name = trace = ""
    if is_error(error):
        kind = storable(call_guarded(lambda: _class_path(type(error)), _broken("class")))
        name = kind.rpartition(".")[2]
        trace = call_guarded(lambda: _traceback_of(error), _broken("traceback"))
    text = storable(error)
    short = f"{name}: {text}" if kind else text
    tail = _clean(_end(trace, MAX_TRACEBACK))
    return ErrorDetails(kind=kind, message=text, traceback=tail, short=short)


def is_error(error: object) -> TypeGuard[BaseException]:
    """Return whether it is an exception, without reading `__class__`, which may be a property."""
    return issubclass(type(error), BaseException)


def _class_path(kind: type) -> str:
    """Return the dotted path of the class."""
    return _plain_str(f"{kind.__module__}.{kind.__qualname__}")


KINDS = {
    **dict.fromkeys(("class", "message", "traceback", "worker"), str),
    **dict.fromkeys(("delivery", "started_at", "failed_at"), int),
}


def stored_failures(errors: Any) -> list[Mapping[str, Any]]:
    """Return the failures in the column `errors`, even if another program wrote it.

    A value that is not an object becomes the message of a failure; facts of the wrong type are
    dropped.
    """
    if errors is None:
        return []
    return [_failure(error) for error in (errors if isinstance(errors, list) else [errors])]


def _failure(error: Any) -> Mapping[str, Any]:
    if not isinstance(error, dict):
        return {"message": str(error)}
    return {
        name: value for name, value in error.items() if isinstance(value, KINDS.get(name, object))
    }


def format_error(error: Mapping[str, Any]) -> str:
    """Return the class path and message of a stored error, if it has them."""
    return ": ".join(str(error[key]) for key in ("class", "message") if error.get(key))


def is_interruption(error: Mapping[str, Any]) -> bool:
    """Return whether the worker interrupted the delivery, so that it did not fail."""
    return str(error.get("class", "")).endswith(".Interrupted")


def storable(text: object) -> str:
    """Return text that SQLite can store: no NUL, no lone surrogates, of limited length."""
    return _clean(_start(text_of(text), MAX_TEXT))


def text_of(error: object) -> str:
    """Return the text of the error, even if its `__str__` raises."""
    return call_guarded(lambda: _plain_str(str(error)), _broken("__str__"))


def _plain_str(text: str) -> str:
    """Return a plain `str`: `__str__` may return a subclass with its own methods."""
    return str.__str__(text)


def _traceback_of(error: BaseException) -> str:
    """Format the traceback with each message truncated, so that the frames remain."""
    lines = [_truncate_line(_plain_str(line)) for line in traceback.format_exception(error)]
    return "".join(
        "".join(part) if are_frames else _truncate_line("".join(part), MAX_FRAMELESS)
        for are_frames, part in groupby(lines, key=_is_frame)
    )


def _is_frame(line: str) -> bool:
    return line.lstrip(" |").startswith('File "')


def _truncate_line(line: str, length: int = MAX_TEXT) -> str:
    return line if len(line) <= length else _start(line, length) + "\n"


def _broken(part: str) -> Callable[[BaseException], str]:
    return lambda error: f"<its {part} raised {type(error).__name__}>"


def _clean(text: str) -> str:
    """Escape NUL, at which SQLite cuts text, and lone surrogates, which it cannot store."""
    return text.replace("\0", "\\0").encode(errors="backslashreplace").decode()


def _start(text: str, length: int) -> str:
    return text if len(text) <= length else text[:length] + " …"


def _end(text: str, length: int) -> str:
    """Return the end, because the last frames show where the error was raised."""
    return text if len(text) <= length else "… " + text[-length:]
