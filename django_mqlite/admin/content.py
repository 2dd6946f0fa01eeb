"""The content of messages as a user may see it: bodies, results and the texts of errors.

The texts of errors belong to it because they can quote the body. Without the permission
`view_body`, the content is hidden. MQLITE["ADMIN_BODY"] masks or formats it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from django.utils.translation import gettext

from ..guard import call_guarded, get_logger
from ..models import Message

logger = get_logger("django_mqlite.admin")

Part = Literal["body", "result", "error"]
"""The part of a message that a text comes from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContentView:
    """What one user may see of the content of a message."""

    permitted: bool
    format: Callable[..., Any] | None

    @property
    def is_unmasked(self) -> bool:
        """True if the user may see the content as it is stored, and search in it."""
        return self.permitted and self.format is None

    def shown(self, text: str, message: Message, part: Part) -> str | None:
        """Return the text to show instead of `text`, or None if it is hidden from the user."""
        if not self.permitted:
            return None
        if self.format is None:
            return text
        formatted = self.format
        return call_guarded(
            lambda: _checked(formatted(text, message, part)),
            lambda error: _not_shown(error, message, part),
        )


def _checked(text: object) -> str:
    if not isinstance(text, str):
        raise TypeError(f"MQLITE['ADMIN_BODY'] must return a str, not {type(text).__name__}")
    return text


def _not_shown(error: BaseException, message: Message, part: Part) -> str:
    # The text of the error may quote the body, so only its class is logged.
    name = type(error).__name__
    logger.error(
        "MQLITE['ADMIN_BODY'] raised %s for the %s of #%s, which is not shown",
        name,
        part,
        message.pk,
    )
    return gettext("Not shown: MQLITE['ADMIN_BODY'] raised %(error)s.") % {"error": name}


def content_of(message: Any) -> ContentView:
    """Return the view of the content that the admin has attached to a message it read."""
    view: ContentView = message.content_view
    return view
