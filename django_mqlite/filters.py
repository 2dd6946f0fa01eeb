"""Subscription filters: CEL expressions over a message's properties, never its body.

CEL, the Common Expression Language, has no loops and no side effects: a filter terminates and
cannot do harm. Compiled by the library `common-expression-language`, the extra [filters].
"""

import json
import logging
import re
from functools import cache, lru_cache
from typing import Any

from django.core.exceptions import ImproperlyConfigured

from .fields import moment
from .types import NewMessage

logger = logging.getLogger("django_mqlite")

MAX_FILTER = 4_096

MACRO = re.compile(r"\.\s*(?:all|exists|exists_one|existsOne|map|filter)\s*\(\s*(\w+)\s*,")
"""What gives an expression names of its own: `subject_parts.exists(part, part == "paid")`."""

NAMES = frozenset(
    {
        "subject",
        "subject_parts",
        "properties",
        "property_keys",
        "group_id",
        "correlation_id",
        "reply_to",
        "message_id",
        "content_type",
        "body_size",
        "enqueued_at",
        "visible_at",
    }
)


def check_filter(expression: str) -> None:
    """Raise ValueError that says what is wrong with the expression; '' is everything."""
    if not isinstance(expression, str):
        raise TypeError(f"a filter is a CEL expression, not {expression!r}")
    if len(expression) > MAX_FILTER:
        raise ValueError(f"a filter has at most {MAX_FILTER} characters, not {len(expression)}")
    if not expression:
        return
    bound = set(MACRO.findall(expression))
    unknown = sorted(set(compiled(expression).variables()) - NAMES - bound)
    if unknown:
        raise ValueError(
            f"the filter {expression!r} asks for {', '.join(unknown)}; it may ask for "
            f"{', '.join(sorted(NAMES))}"
        )


def lets_in(expression: str, names: dict[str, Any], *, subscription: str) -> bool:
    """Whether the filter is true of the message. One that fails is not: closed, and logged."""
    try:
        return judge(expression, names)
    except ImproperlyConfigured:
        raise
    except Exception as error:  # noqa: BLE001 - whatever a filter does, the others are published to
        logger.warning("the filter of subscription %s failed: %s", subscription, error)
        return False


def judge(expression: str, names: dict[str, Any]) -> bool:
    """Whether the filter is true of the message; raises whatever is wrong with it."""
    if not expression:
        return True
    answer = compiled(expression).execute(names)
    if not isinstance(answer, bool):
        raise TypeError(f"it is {answer!r:.100} and neither true nor false")
    return answer


def names_of(message: NewMessage, *, now: int) -> dict[str, Any]:
    """What a filter may ask of a message. Missing texts are ''."""
    properties = json.loads(message.properties or "{}")
    subject = message.subject or ""
    return {
        "subject": subject,
        "subject_parts": subject.split(".") if subject else [],
        "properties": properties,
        "property_keys": sorted(properties),
        "group_id": message.group_id or "",
        "correlation_id": message.correlation_id or "",
        "reply_to": message.reply_to or "",
        "message_id": message.message_id or "",
        "content_type": message.content_type,
        "body_size": len(message.body),
        "enqueued_at": moment(now),
        "visible_at": moment(message.visible_from(now)),
    }


@lru_cache(maxsize=1_024)
def compiled(expression: str) -> Any:
    """The program of the expression; ValueError for wrong syntax."""
    try:
        return _cel().compile(expression)
    except ValueError as error:
        raise ValueError(f"{expression!r} is no CEL expression: {error}") from error


@cache
def _cel() -> Any:
    try:
        import cel  # noqa: PLC0415 - an extra that most projects do not need
    except ImportError as error:
        raise ImproperlyConfigured(
            "Subscription filters need django-mqlite[filters]; without it a subscription takes "
            "everything (filter='')."
        ) from error
    return cel
