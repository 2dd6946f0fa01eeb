"""A backend for Django's tasks framework: tasks as messages, in the transaction of their caller.

Called task_backend and not tasks, because modules named tasks are searched for by other queues.
"""

from ..apps import imported_backends
from ..handlers import Kind, import_modules, modules_of_apps, register_kind
from ..message import TASK
from .backend import MqliteBackend
from .compat import ReturnValueRefused, UnknownTask, task_backends
from .options import Call, MqliteTask, served_queues, task_options
from .runner import connect, handler_of

__all__ = [
    "Call",
    "MqliteBackend",
    "MqliteTask",
    "ReturnValueRefused",
    "UnknownTask",
    "task_options",
]


def queues() -> set[str]:
    """Return the queues of every entry of TASKS with this backend, whatever the others are."""
    return {
        queue
        for alias, kind in imported_backends().items()
        if isinstance(kind, type) and issubclass(kind, MqliteBackend)
        for queue in served_queues(task_backends[alias].queues)
    }


def discover() -> None:
    """Import each installed app's `tasks` module, so that an import error is raised at startup."""
    import_modules(modules_of_apps("tasks"))


register_kind(Kind(content_type=TASK, handler_of=handler_of, queues=queues, discover=discover))
connect()
