"""Assertions about the messages in a queue, for tests."""

from collections.abc import Mapping, Sequence
from typing import Any

from django.db.models import QuerySet

from ..message import TASK
from ..models import Message, Queue
from ..task_facts import task_facts
from ..types import State

ANYTHING: Any = object()
"""The default of an argument that is not compared."""

MAX_LISTED = 10


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
    """Fail unless matching messages wait in the queue; return them, oldest first.

    A message matches if its data equals `data`, and if it is a call of `task` with these `args` and
    `kwargs`; arguments that are not passed are not compared. The queue defaults to the task's.
    `count` is the exact number of matching messages and may be 0; by default at least one must
    match. Active and scheduled messages wait; locked, deferred and finished ones do not. Raises
    QueueNotFound.
    """
    if queue is None and task is None:
        raise TypeError("assert_enqueued() needs a queue or a task")
    if queue is None:
        queue = str(task.queue_name)
    # count=0 would always hold for a misspelled name.
    Queue.objects.db_manager(using).named(queue)
    waiting = _waiting(queue, using)
    matching = list(waiting)
    if data is not ANYTHING:
        matching = [message for message in matching if message.data == data]
    if task is not None:
        matching = [message for message in matching if _is_call(message, task, args, kwargs)]
    if len(matching) == count if count is not None else matching:
        return matching
    expected = "at least 1" if count is None else f"{count}"
    raise AssertionError(
        f"Queue {queue!r} has {len(matching)} matching messages, expected {expected}. "
        f"{_listing(waiting)}"
    )


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


def _listing(waiting: "QuerySet[Message]") -> str:
    lines = [
        f"#{message.pk} {message.state} {message.subject or ''} {str(message.data)[:200]}"
        for message in waiting[:MAX_LISTED]
    ]
    return "\n".join(["Waiting messages:", *lines]) if lines else "No messages are waiting."
