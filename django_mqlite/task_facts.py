"""The facts of a task's message: path, arguments, attempts, errors and result.

Used by the tasks backend, which returns them as the framework's TaskResult, and by the admin.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from .exceptions import stored_failures
from .message import TASK, decode
from .timing import moment
from .types import State

if TYPE_CHECKING:
    from .models import Message

MAX_UNKNOWN_WORKERS = 10_000
"""Limits memory use if another program has written a huge delivery count."""

UNKNOWN_WORKER = "?"
"""Placeholder for a worker that is no longer known."""


class NotATask(ValueError):
    """The message is not a task, or the tasks backend did not write its body."""


class Status(StrEnum):
    """The status of a task, named as in the tasks framework."""

    READY = "READY"
    RUNNING = "RUNNING"
    FAILED = "FAILED"
    SUCCESSFUL = "SUCCESSFUL"


STATUSES: Mapping[str, Status] = {
    State.ACTIVE: Status.READY,
    State.SCHEDULED: Status.READY,
    State.DEFERRED: Status.READY,
    State.LOCKED: Status.RUNNING,
    State.COMPLETED: Status.SUCCESSFUL,
    State.DEAD_LETTERED: Status.FAILED,
}
"""The status of a task by the state of its message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A failed attempt, or the reason why there was no attempt."""

    exception_class_path: str
    message: str
    traceback: str
    worker: str | None = None
    started_at: datetime | None = None
    failed_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFacts:
    """The facts about a message's task. `worker_ids` has one entry per attempt, in order.

    `options` are the call's own options beyond the framework's, as the backend stored them.
    """

    id: str
    path: str
    args: list[Any]
    kwargs: dict[str, Any]
    queue: str
    backend: str
    priority: int
    run_after: datetime | None
    options: dict[str, Any]
    status: Status
    enqueued_at: datetime | None
    started_at: datetime | None
    last_attempted_at: datetime | None
    finished_at: datetime | None
    worker_ids: list[str]
    errors: list[Failure]
    return_value: Any
    progress: Any

    @property
    def attempts(self) -> int:
        """The number of attempts, including those before a redrive."""
        return len(self.worker_ids)


def is_task(message: "Message") -> bool:
    """Return whether the message is a task."""
    return message.content_type == TASK


def task_facts(message: "Message") -> TaskFacts:
    """Return the facts of a task's message. Raises NotATask."""
    call = _call(message)
    properties = _properties(message)
    run_after, options = _options(message, properties)
    failures = [_failure(error) for error in stored_failures(message.errors)]
    starts = [failure.started_at for failure in failures if failure.started_at]
    if message.locked_at:
        starts.append(message.locked_at)
    return TaskFacts(
        id=message.message_id or "",
        path=message.subject or "",
        args=call["args"],
        kwargs=call["kwargs"],
        queue=message.queue,
        backend=properties.get("backend", "default"),
        priority=message.priority,
        run_after=run_after,
        options=options,
        status=STATUSES[message.state],
        enqueued_at=message.enqueued_at,
        started_at=starts[0] if starts else None,
        last_attempted_at=starts[-1] if starts else None,
        finished_at=message.finished_at,
        worker_ids=_worker_ids(message, failures),
        errors=[*failures, *_unattempted_end(message, failures)],
        return_value=message.result,
        # A claim does not read it, and a delivery does not need it.
        progress=vars(message).get("progress"),
    )


def _call(message: "Message") -> dict[str, Any]:
    try:
        call = decode(bytes(message.body), message.content_type)
    except (ValueError, RecursionError) as error:
        raise NotATask(f"The body of {message} is not that of a task: {error}") from error
    if not (
        is_task(message)
        and isinstance(call, dict)
        and isinstance(call.get("args"), list)
        and isinstance(call.get("kwargs"), dict)
    ):
        raise NotATask(f"{message} is not a task: its content type is {message.content_type}")
    return call


def _properties(message: "Message") -> dict[str, str]:
    properties = {} if message.properties is None else message.properties
    if not (
        isinstance(properties, dict)
        and all(isinstance(value, str) for value in properties.values())
    ):
        raise NotATask(f"The properties of {message} are not a mapping of texts")
    return properties


def _options(
    message: "Message", properties: Mapping[str, str]
) -> tuple[datetime | None, dict[str, Any]]:
    """Return run_after and the options. `visible_at` is no substitute: a retry changes it."""
    at, written = properties.get("run_after"), properties.get("options", "{}")
    try:
        run_after = None if at is None else datetime.fromisoformat(at)
        options = json.loads(written)
    except (ValueError, RecursionError) as error:
        raise NotATask(f"The properties of {message} are not those of a task: {error}") from error
    if not isinstance(options, dict):
        raise NotATask(f"The options of {message} are not a mapping")
    return run_after, options


def _failure(error: Mapping[str, Any]) -> Failure:
    message = error.get("message") or ""
    return Failure(
        exception_class_path=error.get("class") or "django_mqlite.exceptions.DeliveryFailed",
        message=message,
        traceback=error.get("traceback") or message,
        worker=error.get("worker"),
        started_at=moment(error.get("started_at") or 0),
        failed_at=moment(error.get("failed_at") or 0),
    )


def _worker_ids(message: "Message", failures: Iterable[Failure]) -> list[str]:
    """Return a worker for each attempt. A message keeps only its last failures.

    A redrive resets the delivery count but keeps the errors.
    """
    known = [failure.worker or UNKNOWN_WORKER for failure in failures]
    if message.state in (State.LOCKED, State.COMPLETED):
        known.append(message.locked_by or UNKNOWN_WORKER)
    unknown = max(0, message.delivery_count - len(known))
    return [UNKNOWN_WORKER] * min(unknown, MAX_UNKNOWN_WORKERS) + known


def _unattempted_end(message: "Message", failures: list[Failure]) -> list[Failure]:
    """Return the reason of a dead letter that no attempt explains, such as an expired TTL."""
    if message.state != State.DEAD_LETTERED:
        return []
    if failures and failures[-1].failed_at == message.finished_at:
        return []
    text = f"{message.dead_letter_reason}: {message.dead_letter_description or ''}"
    kind = "Discarded" if message.dead_letter_reason == "Discarded" else "DeadLettered"
    return [
        Failure(
            exception_class_path=f"django_mqlite.exceptions.{kind}",
            message=text,
            traceback=text,
            failed_at=message.finished_at,
        )
    ]
