"""Conversion of messages to the framework's Task and TaskResult."""

import inspect
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from django.utils.module_loading import import_string

from ..task_facts import TaskFacts, task_facts
from .compat import (
    InvalidTask,
    Task,
    TaskError,
    TaskResult,
    TaskResultStatus,
    UnknownTask,
    task_backends,
)
from .options import MqliteTask, read_options

if TYPE_CHECKING:
    from ..models import Message


def registered_task(path: str) -> Any:
    """The Task that the path names: what `@task` has made, and no other importable thing.

    Raises UnknownTask, also where importing its module fails.
    """
    try:
        found = import_string(path)
    except KeyboardInterrupt:
        raise  # of whoever runs this by hand
    except BaseException as error:  # an import can raise anything
        raise UnknownTask(path, f"{type(error).__name__}: {error}") from error
    if not isinstance(found, Task):
        raise UnknownTask(path, "what is there was not made by @task")
    return found


def is_async(path: str) -> bool:
    """Return whether the task runs in the event loop; a missing task fails in a thread."""
    try:
        return inspect.iscoroutinefunction(registered_task(path).func)
    except UnknownTask:
        return False


def result_of(message: "Message") -> Any:
    """The TaskResult of a message. Raises UnknownTask for a task that this code does not have."""
    facts = task_facts(message)
    return result_from(facts, task_of(facts))


def readable_result(message: "Message") -> Any:
    """Return the TaskResult of a message, also of a task that this code could not run."""
    facts = task_facts(message)
    try:
        task = task_of(facts)
    except UnknownTask as error:
        task = _task_as_stored(facts, error)
    return result_from(facts, task)


def _task_as_stored(facts: TaskFacts, unknown: UnknownTask) -> Any:
    """Make the Task that the message names, unchecked; without its function it only raises."""
    try:
        function = registered_task(facts.path).func
    except UnknownTask:
        function = _missing_function(unknown)
    stored = {
        "func": function,
        "backend": facts.backend,
        "queue_name": facts.queue,
        "priority": facts.priority,
        "run_after": facts.run_after,
        "takes_context": False,
        **read_options(facts.options),
    }
    task = object.__new__(MqliteTask)  # its constructor asks the backend, which would refuse it
    for field in fields(MqliteTask):
        object.__setattr__(task, field.name, stored.get(field.name))
    return task


def _missing_function(unknown: UnknownTask) -> Any:
    def missing(*args: Any, **kwargs: Any) -> None:
        raise UnknownTask(unknown.path, unknown.why)

    missing.__module__, _, missing.__qualname__ = unknown.path.rpartition(".")
    missing.__name__ = missing.__qualname__
    return missing


def task_of(facts: TaskFacts) -> Any:
    """The Task as it was enqueued. Raises UnknownTask, also where TASKS would refuse it today."""
    found = registered_task(facts.path)
    if facts.backend not in task_backends.settings:
        raise UnknownTask(facts.path, f"its backend {facts.backend!r} is not in TASKS")
    if not hasattr(task_backends[facts.backend], "result_ttl_ms"):
        raise UnknownTask(facts.path, f"its backend {facts.backend!r} is another one now")
    said = {
        "backend": facts.backend,
        "queue_name": facts.queue,
        "priority": facts.priority,
        "run_after": facts.run_after,
    }
    if isinstance(found, MqliteTask):
        said |= read_options(facts.options)
    try:
        return replace(found, **said)
    except InvalidTask as error:
        raise UnknownTask(facts.path, str(error)) from error


def result_from(facts: TaskFacts, task: Any) -> Any:
    """Return the TaskResult for the facts of a message."""
    result: TaskResult[Any] = TaskResult(
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
    # Not an argument of its constructor; the frameworks' own backends set it like this.
    object.__setattr__(result, "_return_value", facts.return_value)
    return result
