"""A message that is a task, shown as one on its page."""

from typing import Any

from django.contrib import admin
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy as _

from ..models import Message
from ..task_facts import NotATask, TaskFacts, is_task, task_facts
from .readable import printable, readable_json

FIELDS = ("task_call", "task_status", "task_attempts")
FIELDSET: tuple[Any, Any] = (_("Task"), {"fields": FIELDS})


def facts_of(message: Message) -> TaskFacts | None:
    """None of a message that is no task, or that says it is one and cannot be read as one."""
    try:
        return task_facts(message) if is_task(message) else None
    except NotATask:
        return None


class TaskFields:
    """What it calls, where it stands, and who has tried; errors and result are where any are."""

    @admin.display(description=_("call"))
    def task_call(self, message: Message) -> SafeString:
        """The task's path and its arguments, one a line."""
        facts = task_facts(message)
        arguments = [readable_json(value) for value in facts.args]
        arguments += [f"{name} = {readable_json(value)}" for name, value in facts.kwargs.items()]
        lines = "".join(f"    {argument},\n" for argument in arguments)
        call = f"{facts.path}(\n{lines})" if lines else f"{facts.path}()"
        return format_html('<pre class="mqlite-pre" tabindex="0">{}</pre>', printable(call))

    @admin.display(description=_("status"))
    def task_status(self, message: Message) -> str:
        """The framework's word for the state."""
        return str(task_facts(message).status)

    @admin.display(description=_("attempts"))
    def task_attempts(self, message: Message) -> str:
        """How many, and each one's worker."""
        workers = task_facts(message).worker_ids
        return printable(f"{len(workers)}: {', '.join(workers)}" if workers else "0")
