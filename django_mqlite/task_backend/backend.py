"""The backend for TASKS: a task is stored as a message, its result in the message's row."""

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from django.apps import apps
from django.core.checks import CheckMessage
from django.core.exceptions import ImproperlyConfigured
from django.utils import timezone

from ..conf import get_settings
from ..exceptions import DuplicateConflict
from ..guard import safe_repr
from ..handlers import Enqueue, is_generator_function
from ..message import TASK
from ..message import Draft as MessageDraft
from ..schedules import Schedule
from ..task_facts import task_facts
from ..timing import milliseconds
from ..transactions import after_commit
from .checks import check_backend, check_installed
from .codec import check_unique, encoded_call, unique_key
from .compat import BaseTaskBackend, InvalidTask, TaskResultDoesNotExist, UnknownTask, signals
from .options import (
    Draft,
    MqliteTask,
    TaskOptions,
    checked_options,
    encode_options,
    options_of,
)
from .results import readable_result, registered_task, result_from

if TYPE_CHECKING:
    from ..managers import MessageManager
    from ..models import Message, Queue

DEFAULT_RESULT_TTL_MS = 7 * 24 * 3_600_000


class MqliteBackend(BaseTaskBackend):
    """Tasks in the project's own SQLite database.

    enqueue() joins the caller's transaction on that database. OPTIONS: RESULT_TTL, a timedelta or
    seconds, how long the result of a successful task is kept (7 days).
    """

    task_class = MqliteTask
    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    @property
    def result_ttl_ms(self) -> int:
        """RESULT_TTL in milliseconds, 0 to keep no results. Raises ImproperlyConfigured."""
        if "RESULT_TTL" not in self.options:
            return DEFAULT_RESULT_TTL_MS
        name = f"TASKS[{self.alias!r}]['OPTIONS']['RESULT_TTL']"
        try:
            return milliseconds(self.options["RESULT_TTL"], name)
        except (TypeError, ValueError) as error:
            raise ImproperlyConfigured(str(error)) from error

    @property
    def served_queues(self) -> set[str]:
        """The queues that tasks may use. An empty QUEUES allows every declared queue."""
        return set(self.queues) or set(get_settings().queues)

    def validate_task(self, task: Any) -> None:
        """Raise InvalidTask with the reason if the task cannot be enqueued with this backend."""
        super().validate_task(task)
        if is_generator_function(task.func):
            raise InvalidTask(
                f"{task.name}() contains a yield, so calling it would run none of its code."
            )
        options = checked_options(options_of(task))
        if options.atomic and iscoroutinefunction(task.func):
            raise InvalidTask(
                f"{task.name}() is async and cannot be atomic: Django has no async transactions."
            )
        if isinstance(options.unique, str):
            _check_unique(task, options.unique)
        if options.group_id is not None and task.priority != 0:
            raise InvalidTask(
                "A task with a group_id cannot have a priority: tasks of a group run in order."
            )

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        """Enqueue one call, in the caller's transaction if there is one, and return its TaskResult.

        If the queue has received the task's `message_id` within its `dedup_window`, or a call that
        is `unique` is unfinished, store nothing and return the first call's result. Raises
        InvalidTask, a TypeError or ValueError that names the argument, or an error of
        Message.objects.enqueue(), each before anything is written.
        """
        options = self.checked_options_of(task)
        draft = self.message_draft(task, options, args, kwargs)
        manager = message_manager()
        if options.message_id is not None:
            check_dedup_window(manager, task.queue_name)
        message = manager.enqueue(task.queue_name, draft.data, **draft.options)
        return self.stored_result(manager, task, message)

    def prepare(self, task: Any, args: Any, kwargs: Any) -> Enqueue:
        """Check one call, and return the function that enqueues it with additional properties."""
        draft = self.message_draft(task, self.checked_options_of(task), args, kwargs)

        def enqueue(using: str, properties: Mapping[str, str]) -> "Message":
            own: Any = draft.options
            options = {**own, "properties": {**own["properties"], **properties}}
            manager = apps.get_model("django_mqlite", "Message").objects.db_manager(using)
            message: Message = manager.enqueue(task.queue_name, draft.data, **options)
            self._new_result(task, message)  # sends task_enqueued
            return message

        return enqueue

    def enqueue_many(self, task: Any, drafts: Iterable[Draft]) -> list[Any]:
        """Enqueue all calls or none, in one statement, and return their TaskResults in order."""
        options = self.checked_options_of(task)
        if options.message_id is not None:
            raise InvalidTask(
                "enqueue_many() cannot use a message_id, because it identifies one call: "
                "use enqueue() or enqueue_tasks()."
            )
        manager = message_manager()
        stored = manager.enqueue_many(
            task.queue_name,
            [
                self.message_draft(task, options, draft.args, draft.kwargs)
                for draft in _checked_drafts(drafts)
            ],
        )
        return [self.stored_result(manager, task, message) for message in without_conflicts(stored)]

    def get_result(self, result_id: str) -> Any:
        """Return the TaskResult with this id. Raises TaskResultDoesNotExist.

        If this code does not have the task, calling `result.task.func` raises UnknownTask.
        """
        candidates = message_manager().filter(message_id=str(result_id), content_type=TASK)
        # Not order_by(): SQLite might read the whole table to avoid sorting.
        message = max(candidates, key=lambda message: message.pk, default=None)
        if message is None:
            raise TaskResultDoesNotExist(result_id)
        return readable_result(message)

    def check(self, **kwargs: Any) -> list[CheckMessage]:
        """Return the errors in this entry of TASKS."""
        return check_backend(self)

    def checked_options_of(self, task: Any) -> TaskOptions:
        """Return the options of a task that can be enqueued. Raises InvalidTask."""
        self.validate_task(task)
        _check_importable(task)
        return options_of(task)

    def message_draft(
        self, task: Any, options: TaskOptions, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> MessageDraft:
        """Return the message of one call. Raises an error that names the argument."""
        body = encoded_call(
            task.func,
            args,
            kwargs,
            takes_context=task.takes_context,
            max_bytes=get_settings().max_body_bytes,
        )
        return MessageDraft(
            body,
            content_type=TASK,
            subject=task.module_path,
            message_id=options.message_id or str(uuid4()),
            unique_key=unique_key(task, options.unique, args, kwargs),
            priority=int(task.priority),
            group_id=options.group_id,
            max_delivery_count=options.max_attempts,
            ttl=options.ttl,
            visible_at=None if task.run_after is None else _aware(task.run_after),
            properties=self._properties(task, options),
        )

    def _properties(self, task: Any, options: TaskOptions) -> dict[str, str]:
        """Return the facts without a column that a worker or a result needs."""
        properties = {"backend": self.alias}
        if task.run_after is not None:
            properties["run_after"] = _aware(task.run_after).isoformat()
        if options.timeout is not None:
            properties["timeout_ms"] = str(milliseconds(options.timeout, "timeout"))
        if encoded := encode_options(task):
            properties["options"] = json.dumps(encoded)
        return properties

    def stored_result(
        self, manager: "MessageManager[Message]", task: Any, message: "Message"
    ) -> Any:
        """Return the result of the stored message, or of the first call that it repeats."""
        if not message.duplicate:
            return self._new_result(task, message)
        if "state" in message.get_deferred_fields():  # only its id is known
            return self._first_result(manager, message)
        return readable_result(message)

    def _new_result(self, task: Any, message: "Message") -> Any:
        """Return the result of a new message, and send task_enqueued after commit."""
        result = result_from(task_facts(message), task)
        send = partial(signals.task_enqueued.send_robust, type(self), task_result=result)
        after_commit(str(message._state.db), send)
        return result

    def _first_result(self, manager: "MessageManager[Message]", duplicate: "Message") -> Any:
        first = manager.filter(pk=duplicate.pk).first()
        if first is None:
            raise TaskResultDoesNotExist(
                f"{duplicate.message_id!r} was already enqueued within the dedup_window of queue "
                f"{duplicate.queue!r}; the task has ended and its result is no longer kept."
            )
        return readable_result(first)


def message_manager() -> "MessageManager[Message]":
    """Return the manager for the database that messages are written to, also for reading.

    Raises ImproperlyConfigured if the app is not installed.
    """
    for error in check_installed():
        raise ImproperlyConfigured(f"{error.msg} {error.hint}")
    model: type[Message] = apps.get_model("django_mqlite", "Message")
    return model.objects.db_manager(model.objects.database)


def prepare_call(schedule: Schedule) -> Enqueue:
    """Check the call that a schedule makes, and return the function that enqueues it.

    Raises UnknownTask, InvalidTask, or an error that names the argument.
    """
    task = registered_task(schedule.task or "")
    changes = {"queue_name": schedule.queue, **schedule.options}
    task = task.using(**{name: value for name, value in changes.items() if value is not None})
    backend = task.get_backend()
    if not isinstance(backend, MqliteBackend):
        raise InvalidTask(
            f"Schedule {schedule.name!r} cannot enqueue {schedule.task}: the task's backend is "
            f"{type(backend).__name__} ({task.backend!r}), and not MqliteBackend."
        )
    return backend.prepare(task, list(schedule.args), dict(schedule.kwargs))


def _check_unique(task: Any, unique: str) -> None:
    try:
        check_unique(task.func, unique, takes_context=task.takes_context)
    except ValueError as error:
        raise InvalidTask(str(error)) from error


def _check_importable(task: Any) -> None:
    """Check that the task can be imported by its path, as a worker does."""
    if task.func.__module__ == "__main__":
        raise InvalidTask(
            f"{task.name}() is defined in __main__, which a worker cannot import: "
            "move it to a module of an app."
        )
    try:
        registered = registered_task(task.module_path)
    except UnknownTask as error:
        raise InvalidTask(f"{error}. Assign the task to the name of its function.") from error
    if registered.func is not task.func:
        raise InvalidTask(
            f"{task.module_path!r} is a different task, which a worker would run instead."
        )


def check_dedup_window(manager: "MessageManager[Message]", queue: str) -> None:
    """Check for a deduplication window; without one, two messages could have the same id."""
    model: type[Queue] = apps.get_model("django_mqlite", "Queue")
    stored = model.objects.using(manager.database).filter(name=queue)
    if stored.values_list("dedup_window_ms", flat=True).first() == 0:
        raise InvalidTask(
            f"Queue {queue!r} has no dedup_window, which message_id needs: set one in "
            "MQLITE['QUEUES'] and run `manage.py migrate`."
        )


def _checked_drafts(drafts: Iterable[Draft]) -> list[Draft]:
    drafts = list(drafts)
    for draft in drafts:
        if not isinstance(draft, Draft):
            raise TypeError(
                "enqueue_many() of a task takes objects of django_mqlite.task_backend.Draft, "
                f"not {safe_repr(draft)}"
            )
    return drafts


def without_conflicts(stored: "Iterable[Message | DuplicateConflict]") -> "Iterable[Message]":
    """Yield the stored messages; raise the first DuplicateConflict."""
    for message in stored:
        if isinstance(message, DuplicateConflict):
            raise message
        yield message


def _aware(at: datetime) -> datetime:
    """Return `at` as an aware datetime; naive times are in the project's time zone."""
    return at if timezone.is_aware(at) else timezone.make_aware(at)
