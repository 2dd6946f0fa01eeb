"""Enqueue calls of different tasks together."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from asgiref.sync import sync_to_async

from ..guard import safe_repr
from ..message import Draft
from ..transactions import write_transaction
from .backend import (
    MqliteBackend,
    check_dedup_window,
    message_manager,
    without_conflicts,
)
from .options import Call, TaskOptions

if TYPE_CHECKING:
    from ..models import Message


def enqueue_tasks(calls: Iterable[Call]) -> list[Any]:
    """Enqueue all calls or none, in the caller's transaction; return their TaskResults in order.

    Each call is a Call with a task and its arguments: `Call(resize.using(priority=5), 17)`. The
    calls of a queue are stored in one statement. The options of each task apply as in its
    enqueue(). Raises the errors of enqueue(), and TypeError for anything but a Call; then nothing
    is stored.

    If one of the tasks has another backend, for example in tests, all are enqueued one by one.
    """
    calls = _checked_calls(calls)
    if not all(isinstance(call.task.get_backend(), MqliteBackend) for call in calls):
        return [call.task.enqueue(*call.args, **call.kwargs) for call in calls]
    return _enqueue_calls(calls)


async def aenqueue_tasks(calls: Iterable[Call]) -> list[Any]:
    """Run enqueue_tasks() from a coroutine; the arguments, result and errors are the same."""
    return await sync_to_async(enqueue_tasks, thread_sensitive=True)(calls)


def _enqueue_calls(calls: Sequence[Call]) -> list[Any]:
    manager = message_manager()
    drafts: dict[str, dict[int, Draft]] = {}
    options: dict[int, TaskOptions] = {}
    for index, call in enumerate(calls):
        task, backend = call.task, _backend_of(call)
        if id(task) not in options:
            options[id(task)] = backend.checked_options_of(task)
            if options[id(task)].message_id is not None:
                check_dedup_window(manager, task.queue_name)
        draft = backend.message_draft(task, options[id(task)], call.args, call.kwargs)
        drafts.setdefault(task.queue_name, {})[index] = draft
    messages: dict[int, Message] = {}
    with write_transaction(manager.database):
        for queue, by_index in drafts.items():
            stored = without_conflicts(manager.enqueue_many(queue, by_index.values()))
            messages.update(zip(by_index, stored, strict=True))
    return [
        _backend_of(call).stored_result(manager, call.task, messages[index])
        for index, call in enumerate(calls)
    ]


def _backend_of(call: Call) -> MqliteBackend:
    return call.task.get_backend()  # type: ignore[return-value]


def _checked_calls(calls: Any) -> list[Call]:
    if not isinstance(calls, Iterable):
        raise TypeError(f"enqueue_tasks() takes a list of Call objects, not {safe_repr(calls)}")
    checked = list(calls)
    for call in checked:
        if not isinstance(call, Call):
            raise TypeError(
                "enqueue_tasks() takes objects of django_mqlite.task_backend.Call, not "
                f"{safe_repr(call)}"
            )
    return checked
