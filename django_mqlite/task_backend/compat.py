"""The tasks framework: Django's own since 6.0, the package django-tasks before.

This is the only module that imports either of them.
"""

from typing import TYPE_CHECKING

import django
from django.core.exceptions import ImproperlyConfigured

from ..exceptions import MqliteError, Reject


class UnknownTask(MqliteError):
    """The message refers to a task that this version of the code does not have."""

    def __init__(self, path: str, cause: str) -> None:
        self.path = path
        self.cause = cause
        super().__init__(f"There is no task {path!r} in this code: {cause}")


class ReturnValueRefused(Reject, TypeError):
    """The task succeeded but its return value cannot be stored. The task is not run again."""

    def __init__(self, cause: str) -> None:
        Reject.__init__(self, "ReturnValueRefused", cause)


if not TYPE_CHECKING and django.VERSION >= (6, 0):
    from django.tasks import (
        TaskContext,
        TaskResult,
        TaskResultStatus,
        signals,
        task,
        task_backends,
    )
    from django.tasks.backends.base import BaseTaskBackend
    from django.tasks.base import TASK_REFRESH_ATTRS, Task, TaskError
    from django.tasks.exceptions import InvalidTask, TaskResultDoesNotExist, TaskResultMismatch
    from django.utils.json import normalize_json
else:
    try:
        from django_tasks import (
            TaskContext,
            TaskResult,
            TaskResultStatus,
            signals,
            task,
            task_backends,
        )
        from django_tasks.backends.base import BaseTaskBackend
        from django_tasks.base import TASK_REFRESH_ATTRS, Task, TaskError
        from django_tasks.exceptions import TaskResultDoesNotExist, TaskResultMismatch
        from django_tasks.utils import normalize_json

        try:
            from django_tasks.exceptions import InvalidTask  # type: ignore[attr-defined]
        except ImportError:  # its name in releases up to 0.12
            from django_tasks.exceptions import InvalidTaskError as InvalidTask
    except ModuleNotFoundError as error:
        raise ImproperlyConfigured(
            "Tasks need Django 6.0 or later, or the package django-tasks on Django 5.2: "
            'python -m pip install "django-mqlite[django-tasks]"'
        ) from error

__all__ = [
    "TASK_REFRESH_ATTRS",
    "BaseTaskBackend",
    "InvalidTask",
    "Task",
    "TaskContext",
    "TaskError",
    "TaskResult",
    "TaskResultDoesNotExist",
    "TaskResultMismatch",
    "TaskResultStatus",
    "normalize_json",
    "signals",
    "task",
    "task_backends",
]
