"""A backend for Django's tasks framework: tasks as messages, in the transaction of their caller.

Called task_backend and not tasks, because other task queues import every module named tasks.
"""

from typing import Any

from ..apps import imported_backends
from ..handlers import MessageKind, import_modules, modules_of_apps, register_kind
from ..message import TASK
from .backend import MqliteBackend, prepare_call
from .bulk import aenqueue_tasks, enqueue_tasks
from .compat import ReturnValueRefused, UnknownTask, task_backends
from .options import Call, Draft, MqliteTask, task_options
from .runner import handler_of

__all__ = [
    "Call",
    "Draft",
    "MqliteBackend",
    "MqliteTask",
    "ReturnValueRefused",
    "UnknownTask",
    "aenqueue_tasks",
    "enqueue_tasks",
    "task_options",
]


def queues() -> set[str]:
    """Return the queues of every entry of TASKS with this backend."""
    backends: list[Any] = [
        task_backends[alias]
        for alias, backend in imported_backends().items()
        if isinstance(backend, type) and issubclass(backend, MqliteBackend)
    ]
    return {queue for backend in backends for queue in backend.served_queues}


def discover() -> None:
    """Import each installed app's `tasks` module, so that an import error is raised at startup."""
    import_modules(modules_of_apps("tasks"))


register_kind(
    MessageKind(
        content_type=TASK,
        handler_of=handler_of,
        queues=queues,
        discover=discover,
        prepare_call=prepare_call,
    )
)
