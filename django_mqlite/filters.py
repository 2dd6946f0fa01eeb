"""Subscription filters: CEL expressions over a message's properties, never its body.

CEL, the Common Expression Language, has no side effects, and its only loops are macros over a
list. Nested loops and expressions that build large values are rejected, because filters run in
publish(), in the application's requests. The library `common-expression-language` compiles them; it
is installed with the extra [filters].
"""

import json
import logging
import re
from functools import cache, lru_cache
from typing import Any

from django.core.exceptions import ImproperlyConfigured

from .formatting import printable
from .guard import safe_repr
from .timing import moment
from .types import NewMessage

logger = logging.getLogger("django_mqlite")

MAX_FILTER = 4_096

MAX_ADDITIONS = 32
"""Limit of `+`, which also joins strings and lists, so that no filter builds large values."""

MACROS = frozenset({"all", "exists", "exists_one", "existsOne", "filter"})
"""Loops over a list, with a loop variable: `subject_parts.exists(part, part == "paid")`."""

METHODS = MACROS | {
    *("contains", "endsWith", "matches", "size", "startsWith"),
    *("getDate", "getDayOfMonth", "getDayOfWeek", "getDayOfYear", "getFullYear", "getMonth"),
    *("getHours", "getMilliseconds", "getMinutes", "getSeconds"),
}
"""Functions called on a value: `subject.startsWith("order.")`."""

FUNCTIONS = frozenset(
    {
        *("bytes", "double", "duration", "dyn", "has", "int", "size", "string", "timestamp"),
        *("type", "uint"),
    }
)
"""Functions called without one: `size(subject_parts)`."""

TEXT = re.compile(
    r"""
    //[^\n]*                                                       # a comment
    | [bB]?[rR][bB]?(?:\"{3}.*?\"{3} | '{3}.*?'{3} | "[^"]*" | '[^']*')  # a raw text
    | \"{3}(?:\\.|.)*?\"{3} | '{3}(?:\\.|.)*?'{3}
    | "(?:\\.|[^"\\])*" | '(?:\\.|[^'\\])*'
    """,
    re.VERBOSE | re.DOTALL,
)
"""The parts of an expression that are not code."""

BRACKET = re.compile(
    r"(?:(?P<dot>\.?)\s*\b(?P<name>[A-Za-z_]\w*)\s*)?\((?:\s*(?P<first>\w+)\s*,)?|[\[{)\]}]"
)
"""A bracket. For a call, also its name and its first argument if that is an identifier."""

VARIABLES = frozenset(
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
    """Raise ValueError if the expression is not a valid filter; '' matches everything."""
    if not isinstance(expression, str):
        raise TypeError(f"filter must be a CEL expression, not {safe_repr(expression)}")
    if len(expression) > MAX_FILTER:
        raise ValueError(f"filter must have at most {MAX_FILTER} characters, not {len(expression)}")
    if expression:
        compiled(expression)


def matches(expression: str, variables: dict[str, Any], *, subscription: str) -> bool:
    """Return whether the filter matches the message; log an error in it and return False."""
    try:
        return evaluate(expression, variables)
    except ImproperlyConfigured:
        raise
    except Exception as error:  # noqa: BLE001 - a failing filter must not stop the publish
        logger.warning(
            "The filter of subscription %s failed: %s", subscription, printable(str(error))
        )
        return False


def evaluate(expression: str, variables: dict[str, Any]) -> bool:
    """Return whether the filter matches the message, or raise the error of the expression."""
    if not expression:
        return True
    result = compiled(expression).execute(variables)
    if not isinstance(result, bool):
        raise TypeError(f"the result is {result!r:.100}, not true or false")
    return result


def filter_variables(message: NewMessage, *, now: int) -> dict[str, Any]:
    """Return the variables of a filter for this message. Missing texts are ''."""
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
    """Return the compiled expression. Raises ValueError for invalid syntax, names and high cost."""
    try:
        program = _cel().compile(expression)
    except ValueError as error:
        raise ValueError(
            f"filter {safe_repr(expression)} is not a valid CEL expression: {error!s:.300}"
        ) from error
    code = TEXT.sub(" ", expression)
    if code.count("+") > MAX_ADDITIONS:
        raise ValueError(f"A filter has at most {MAX_ADDITIONS} additions, not {code.count('+')}.")
    bound = _loop_variables(code)
    unknown = sorted(set(program.variables()) - VARIABLES - bound)
    if unknown:
        raise ValueError(
            f"filter {safe_repr(expression)} uses {', '.join(unknown):.100}; the variables are "
            f"{', '.join(sorted(VARIABLES))}."
        )
    return program


def _loop_variables(code: str) -> set[str]:
    """Return the variables of macros. Raises ValueError for unknown functions and nested loops."""
    variables: set[str] = set()
    open_brackets: list[bool] = []  # True for the bracket of a macro
    for bracket in BRACKET.finditer(code):
        if bracket[0] in (")", "]", "}"):
            open_brackets.pop()
            continue
        is_macro = _is_macro(bracket)
        if is_macro:
            variables.add(bracket["first"] or "")
            if any(open_brackets):
                raise ValueError(
                    f"A filter has no {bracket['name']}() inside another loop, because the costs "
                    "multiply: compare with `in`, or create two subscriptions."
                )
        open_brackets.append(is_macro)
    return variables


def _is_macro(bracket: re.Match[str]) -> bool:
    """Return whether the bracket opens a macro. Raises ValueError for an unknown function."""
    name = bracket["name"]
    if name is None or (name == "in" and not bracket["dot"]):
        return False
    known = METHODS if bracket["dot"] else FUNCTIONS
    if name not in known:
        form = "value.{}()" if bracket["dot"] else "{}()"
        raise ValueError(
            f"A filter has no function {form.format(name)}; the functions are "
            f"{', '.join(form.format(function) for function in sorted(known))}."
        )
    return name in MACROS


@cache
def _cel() -> Any:
    try:
        import cel  # noqa: PLC0415 - an extra that most projects do not need
    except ImportError as error:
        raise ImproperlyConfigured(
            "Subscription filters need the extra django-mqlite[filters]. Without it a subscription "
            "gets every message (filter='')."
        ) from error
    return cel
