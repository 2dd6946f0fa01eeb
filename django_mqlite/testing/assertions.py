"""Assertions about the messages in a queue, for tests."""

from collections.abc import Mapping, Sequence
from typing import Any

from django.db.models import QuerySet

from ..exceptions import QueueNotFound
from ..message import TASK
from ..models import Message, Queue
from ..task_facts import task_facts
from ..types import State

ANYTHING: Any = object()
"""No wish about it."""

MOST_SHOWN = 10


def assert_enqueued(
    queue: str | None = None,
    *,
    data: Any = ANYTHING,
    task: Any = None,
    args: Sequence[Any] = ANYTHING,
    kwargs: Mapping[str, Any] = ANYTHING,
    count: int | None = None,
    using: str | None = None,
) -> list[Message]:
    """Fail unless messages like this wait in the queue; those that do, the oldest first.

    `data` is compared with each message's. With a `task`, a call of it is meant, with these `args`
    and `kwargs` if they are given, in the task's own queue unless another is named. `count` is how
    many there are to be, also 0; by default at least one. What is scheduled waits as well; what is
    being handled or has ended does not. Raises QueueNotFound.
    """
    if queue is None and task is None:
        raise TypeError("assert_enqueued() needs a queue or a task")
    queue = queue or str(task.queue_name)
    _must_exist(queue, using)
    waiting = _waiting(queue, using)
    found = list(waiting)
    if data is not ANYTHING:
        found = [message for message in found if message.data == data]
    if task is not None:
        found = [message for message in found if _is_call(message, task, args, kwargs)]
    if len(found) == count if count is not None else found:
        return found
    wanted = "at least one such message" if count is None else f"{count} such messages"
    raise AssertionError(
        f"queue {queue!r} was to have {wanted} and has {len(found)}. {_shown(waiting)}"
    )


def _must_exist(queue: str, using: str | None) -> None:
    """A misspelt one would have no messages for ever, and `count=0` always hold."""
    queues = Queue.objects.using(using or Message.objects.database)
    known = set(queues.values_list("name", flat=True))
    if queue not in known:
        raise QueueNotFound(queue, known)


def _waiting(queue: str, using: str | None) -> "QuerySet[Message]":
    messages = Message.objects.using(using or Message.objects.database)
    waiting = messages.filter(queue=queue, state__in=[State.ACTIVE, State.SCHEDULED])
    return waiting.order_by("pk")


def _is_call(message: Message, task: Any, args: Any, kwargs: Any) -> bool:
    if message.content_type != TASK or message.subject != task.module_path:
        return False
    facts = task_facts(message)
    return (args is ANYTHING or facts.args == list(args)) and (
        kwargs is ANYTHING or facts.kwargs == dict(kwargs)
    )


def _shown(waiting: "QuerySet[Message]") -> str:
    lines = [
        f"#{message.pk} {message.state} {message.subject or ''} {str(message.data)[:200]}"
        for message in waiting[:MOST_SHOWN]
    ]
    return "\n".join(["What waits in it:", *lines]) if lines else "Nothing waits in it."
