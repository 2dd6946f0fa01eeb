"""Conversion of messages to the framework's Task and TaskResult."""

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from django.utils.module_loading import import_string

from ..task_facts import TaskFacts, task_facts
from .compat import (
    TASK_REFRESH_ATTRS,
    InvalidTask,
    Task,
    TaskContext,
    TaskError,
    TaskResult,
    TaskResultStatus,
    UnknownTask,
    task_backends,
)
from .options import MqliteTask, decode_options

if TYPE_CHECKING:
    from ..models import Message


def registered_task(path: str) -> Any:
    """Return the Task that the path names, never another importable object.

    Raises UnknownTask, also if its module cannot be imported.
    """
    try:
        task = import_string(path)
    except KeyboardInterrupt:
        raise  # Ctrl-C
    except BaseException as error:  # an import can raise anything
        raise UnknownTask(path, f"{type(error).__name__}: {error}") from error
    if not isinstance(task, Task):
        raise UnknownTask(path, "the object at this path was not defined with @task")
    return task


def result_of(message: "Message") -> Any:
    """Return the TaskResult of a message. Raises UnknownTask if this code lacks the task."""
    facts = task_facts(message)
    return result_from(facts, task_of(facts))


def readable_result(message: "Message") -> Any:
    """Return the TaskResult of a message, even if this code cannot run the task."""
    facts = task_facts(message)
    try:
        task = task_of(facts)
    except UnknownTask as error:
        task = _task_as_stored(facts, error)
    return result_from(facts, task)


def _task_as_stored(facts: TaskFacts, unknown: UnknownTask) -> Any:
    """Build the Task that the message names, unchecked. A missing function raises UnknownTask."""
    try:
        function = registered_task(facts.path).func
    except UnknownTask:
        function = _missing_function(unknown)
    stored = {
        "func": function,
        "takes_context": False,
        **_framework_options(facts),
        **decode_options(facts.options),
    }
    task = object.__new__(MqliteTask)  # the constructor would raise InvalidTask
    for field in fields(MqliteTask):
        object.__setattr__(task, field.name, stored.get(field.name))
    return task


def _missing_function(unknown: UnknownTask) -> Any:
    def missing(*args: Any, **kwargs: Any) -> None:
        raise UnknownTask(unknown.path, unknown.cause)

    missing.__module__, _, missing.__qualname__ = unknown.path.rpartition(".")
    missing.__name__ = missing.__qualname__
    return missing


def task_of(facts: TaskFacts) -> Any:
    """Return the Task as it was enqueued. Raises UnknownTask, also if TASKS no longer allows it."""
    task = registered_task(facts.path)
    if facts.backend not in task_backends.settings:
        raise UnknownTask(facts.path, f"its backend {facts.backend!r} is not in TASKS")
    if not hasattr(task_backends[facts.backend], "result_ttl_ms"):
        raise UnknownTask(facts.path, f"its backend {facts.backend!r} is no longer MqliteBackend")
    options = _framework_options(facts)
    if isinstance(task, MqliteTask):
        options |= decode_options(facts.options)
    try:
        return replace(task, **options)
    except InvalidTask as error:
        raise UnknownTask(facts.path, str(error)) from error


def _framework_options(facts: TaskFacts) -> dict[str, Any]:
    return {
        "backend": facts.backend,
        "queue_name": facts.queue,
        "priority": facts.priority,
        "run_after": facts.run_after,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class MqliteTaskResult(TaskResult):  # type: ignore[type-arg]
    """A TaskResult with the `progress` that the task has set.

    It is None, or a dict with `fraction`, `text` and `updated_at` in epoch milliseconds.
    """

    progress: Any = None

    def refresh(self) -> None:
        """Read the result again."""
        self._copy(self.task.get_backend().get_result(self.id))

    async def arefresh(self) -> None:
        """Call refresh() from async code."""
        self._copy(await self.task.get_backend().aget_result(self.id))

    def _copy(self, current: Any) -> None:
        for name in (*TASK_REFRESH_ATTRS, "progress"):
            object.__setattr__(self, name, getattr(current, name))


@dataclass(frozen=True, slots=True, kw_only=True)
class MqliteTaskContext(TaskContext):
    """A TaskContext that can record progress and says whether the lease is lost."""

    message: Any

    @property
    def lease_lost(self) -> bool:
        """True once the worker knows that the result of this attempt will be ignored."""
        return bool(self.message.lease_lost)

    def set_progress(self, fraction: float, text: str = "") -> None:
        """Record how much of the work is done, as Message.set_progress() does."""
        self.message.set_progress(fraction, text)

    async def aset_progress(self, fraction: float, text: str = "") -> None:
        """Call set_progress() from async code."""
        await self.message.aset_progress(fraction, text)


def result_from(facts: TaskFacts, task: Any) -> Any:
    """Return the TaskResult for the facts of a message."""
    result: MqliteTaskResult = MqliteTaskResult(
        progress=facts.progress,
        task=task,
        id=facts.id,
        status=TaskResultStatus[facts.status],
        enqueued_at=facts.enqueued_at,
        started_at=facts.started_at,
        last_attempted_at=facts.last_attempted_at,
        finished_at=facts.finished_at,
        args=facts.args,
        kwargs=facts.kwargs,
        backend=facts.backend,
        errors=[
            TaskError(
                exception_class_path=failure.exception_class_path, traceback=failure.traceback
            )
            for failure in facts.errors
        ],
        worker_ids=facts.worker_ids,
    )
    # Not an argument of the constructor; the framework's own backends set it this way too.
    object.__setattr__(result, "_return_value", facts.return_value)
    return result
