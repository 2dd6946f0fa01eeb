"""Each system check leads to its paragraph in the documentation, which wheels do not carry."""

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

from django.core.checks import CheckMessage

PAGE = "docs/checks.md"

Check = Callable[..., list[CheckMessage]]


def with_link(check: Check) -> Check:
    """The check, with the place where there is more to read at the end of every hint."""

    @wraps(check)
    def linked(
        app_configs: Any = None, databases: Sequence[str] | None = None, **_: Any
    ) -> list[CheckMessage]:
        return linked_hints(check(app_configs=app_configs, databases=databases))

    return linked


def linked_hints(messages: list[CheckMessage]) -> list[CheckMessage]:
    """The messages, each with that place at the end of its hint."""
    for message in messages:
        message.hint = (
            f"{message.hint or ''} See django-mqlite's {PAGE}#{anchor(str(message.id))}.".strip()
        )
    return messages


def anchor(id: str) -> str:
    """Of a heading that is the id, as Markdown renderers make it."""
    return id.lower().replace(".", "")
