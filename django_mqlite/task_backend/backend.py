"""The backend for TASKS: a task is a message, its result the message's row."""

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from asgiref.sync import sync_to_async
from django.apps import apps
from django.core.checks import CheckMessage
from django.core.exceptions import ImproperlyConfigured
from django.utils import timezone

from ..conf import get_settings
from ..exceptions import DuplicateConflict
from ..handlers import is_generator_function
from ..message import TASK, Draft, MessageOptions
from ..task_facts import task_facts
from ..transactions import after_commit
from .codec import encoded_call
from .compat import BaseTaskBackend, InvalidTask, TaskResultDoesNotExist, UnknownTask, signals
from .options import (
    Call,
    MqliteTask,
    TaskOptions,
    check_backend,
    check_installed,
    checked,
    options_of,
    result_ttl_ms,
    written_options,
)
from .results import readable_result, registered_task, result_from

if TYPE_CHECKING:
    from ..managers import MessageManager
    from ..models import Message, Queue


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
        """The retention of successful tasks in milliseconds. Raises ImproperlyConfigured."""
        return result_ttl_ms(self.alias, self.options)

    def validate_task(self, task: Any) -> None:
        """Raise InvalidTask with the reason if the task cannot be enqueued with this backend."""
        super().validate_task(task)
        if is_generator_function(task.func):
            raise InvalidTask(f"{task.name}() has a yield: calling it would run nothing of it.")
        options = checked(options_of(task))
        if options.group_id is not None and task.priority != 0:
            raise InvalidTask("A priority would overtake, and a group_id promises an order.")

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        """Enqueue one call, in the caller's transaction if there is one; its TaskResult.

        With a `message_id` that the queue has seen within its `dedup_window` nothing is enqueued,
        and the result is the first one's. Raises InvalidTask, a TypeError or ValueError that names
        the argument, and what enqueue() of messages raises, each before anything is written.
        """
        options = self._ready(task)
        draft = self._draft(task, options, args, kwargs)
        messages = self._messages()
        if options.message_id is not None:
            _must_have_window(messages, task.queue_name)
        message = messages.enqueue(task.queue_name, draft.data, **draft.options)
        if message.duplicate:
            return self._original(messages, message)
        return self._told(task, message)

    def enqueue_many(self, task: Any, items: Iterable[Call]) -> list[Any]:
        """Enqueue all of these calls or none, in one statement; their TaskResults in order."""
        options = self._ready(task)
        if options.message_id is not None:
            raise InvalidTask("message_id is one call's own: enqueue these one by one.")
        drafts = [self._draft(task, options, draft.args, draft.kwargs) for draft in _checked(items)]
        stored = self._messages().enqueue_many(task.queue_name, drafts)
        return [self._told(task, message) for message in _all_new(stored)]

    async def aenqueue_many(self, task: Any, items: Iterable[Call]) -> list[Any]:
        """Call enqueue_many() from async code."""
        return await sync_to_async(self.enqueue_many, thread_sensitive=True)(task, items)

    def get_result(self, result_id: str) -> Any:
        """The TaskResult with this id. Raises TaskResultDoesNotExist, also when it is kept no more.

        Where this code does not have the task, the function of `result.task` raises UnknownTask.
        """
        found = self._messages().filter(message_id=str(result_id), content_type=TASK)
        # Sorted here: asked for an order SQLite might walk the table for it.
        message = max(found, key=lambda message: message.pk, default=None)
        if message is None:
            raise TaskResultDoesNotExist(result_id)
        return readable_result(message)

    def check(self, **kwargs: Any) -> list[CheckMessage]:
        """Return the mistakes in this entry of TASKS."""
        return check_backend(self)

    def _ready(self, task: Any) -> TaskOptions:
        self.validate_task(task)
        _must_be_found(task)
        return options_of(task)

    def _draft(
        self, task: Any, options: TaskOptions, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Draft:
        body = encoded_call(
            task.func,
            args,
            kwargs,
            takes_context=task.takes_context,
            max_bytes=get_settings().max_body_bytes,
        )
        said: MessageOptions = {
            "content_type": TASK,
            "subject": task.module_path,
            "message_id": options.message_id or str(uuid4()),
            "priority": int(task.priority),
            "group_id": options.group_id,
            "max_delivery_count": options.max_attempts,
            "ttl": options.ttl,
            "visible_at": None if task.run_after is None else _aware(task.run_after),
            "properties": self._properties(task),
        }
        return Draft(body, **said)

    def _properties(self, task: Any) -> dict[str, str]:
        """Return the facts that have no column and that a worker or a result needs."""
        properties = {"backend": self.alias}
        if task.run_after is not None:
            properties["run_after"] = _aware(task.run_after).isoformat()
        if options := written_options(task):
            properties["options"] = json.dumps(options)
        return properties

    def _told(self, task: Any, message: "Message") -> Any:
        """The result of what has just been enqueued; the signal waits for the commit."""
        result = result_from(task_facts(message), task)
        send = partial(signals.task_enqueued.send_robust, type(self), task_result=result)
        after_commit(str(message._state.db), send)
        return result

    def _original(self, messages: "MessageManager[Message]", duplicate: "Message") -> Any:
        original = messages.filter(pk=duplicate.pk).first()
        if original is None:
            raise TaskResultDoesNotExist(
                f"{duplicate.message_id!r} was enqueued within the dedup_window of queue "
                f"{duplicate.queue!r} already; it has ended, and its result is kept no more"
            )
        return readable_result(original)

    def _messages(self) -> "MessageManager[Message]":
        """On the database that messages are written to, so that what was written is read.

        Raises ImproperlyConfigured where the app is not installed.
        """
        for error in check_installed():
            raise ImproperlyConfigured(f"{error.msg} {error.hint}")
        model: type[Message] = apps.get_model("django_mqlite", "Message")
        return model.objects.db_manager(model.objects.database)


def _must_be_found(task: Any) -> None:
    """Check that the task's path leads to the task, because a worker imports it by that path."""
    if task.func.__module__ == "__main__":
        raise InvalidTask(f"{task.name}() is of __main__, where a worker cannot find it.")
    try:
        found = registered_task(task.module_path)
    except UnknownTask as error:
        raise InvalidTask(f"{error}. Bind the task under the name of its function.") from error
    if found.func is not task.func:
        raise InvalidTask(f"{task.module_path!r} is another task; a worker would run that one.")


def _must_have_window(messages: "MessageManager[Message]", queue: str) -> None:
    """Check for a deduplication window; without one, two messages could have the same id."""
    model: type[Queue] = apps.get_model("django_mqlite", "Queue")
    window = model.objects.using(messages.database).filter(name=queue)
    if window.values_list("dedup_window_ms", flat=True).first() == 0:
        raise InvalidTask(
            f"message_id needs a window in which queue {queue!r} tells a repeat: declare it in "
            "MQLITE['QUEUES'] with a dedup_window, and run `manage.py migrate`."
        )


def _checked(items: Iterable[Call]) -> list[Call]:
    drafts = list(items)
    for draft in drafts:
        if not isinstance(draft, Call):
            raise TypeError(f"enqueue_many() takes Call(…) objects, not {draft!r:.100}")
    return drafts


def _all_new(stored: "Iterable[Message | DuplicateConflict]") -> "Iterable[Message]":
    """Yield the stored messages; raise the first DuplicateConflict."""
    for message in stored:
        if isinstance(message, DuplicateConflict):
            raise message
        yield message


def _aware(at: datetime) -> datetime:
    """Return `at` as an aware datetime; naive times are in the project's time zone."""
    return at if timezone.is_aware(at) else timezone.make_aware(at)
