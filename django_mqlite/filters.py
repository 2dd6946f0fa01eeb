"""Subscription filters: CEL expressions over a message's properties.

A filter never sees the body, except the filters of clients of the HTTP broker, whose language has
variables for it.

CEL, the Common Expression Language, has no side effects, and its only loops are macros over a
list. Nested loops and expressions that build large values are rejected, because filters run in
publish(), in the application's requests. The library `common-expression-language` compiles them; it
is installed with the extra [filters].
"""

import json
import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

from django.core.exceptions import ImproperlyConfigured

from .formatting import printable
from .guard import safe_repr
from .timing import moment
from .types import NewMessage

logger = logging.getLogger("django_mqlite")

MAX_FILTER = 4_096
MAX_TRANSLATED_FILTER = 16_384

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
        *("bytes", "double", "duration", "dyn", "has", "int", "length", "member"),
        *("optional_member", "size", "string", "timestamp", "type", "uint"),
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


def _member(value: Mapping[str, Any], name: str) -> Any:
    if not isinstance(value, Mapping):
        raise TypeError(f"a value of type {type(value).__name__} has no members")
    return value.get(name)


OWN_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "length": len,
    "member": _member,
    "optional_member": lambda value, name: None if value is None else _member(value, name),
}
"""Functions that CEL does not have.

`size()` counts the bytes of a text, and `length()` its characters. `member(map, name)` is null for
a missing member, and `optional_member(map, name)` also for a map that is null. They are only passed
to a filter that calls one, because a filter without them is faster.
"""

VARIABLES: Mapping[str, Callable[[NewMessage, int], Any]] = {
    "subject": lambda message, now: message.subject or "",
    "subject_parts": lambda message, now: message.subject.split(".") if message.subject else [],
    "properties": lambda message, now: _properties_of(message),
    "property_keys": lambda message, now: sorted(_properties_of(message)),
    "group_id": lambda message, now: message.group_id or "",
    "correlation_id": lambda message, now: message.correlation_id or "",
    "reply_to": lambda message, now: message.reply_to or "",
    "message_id": lambda message, now: message.message_id or "",
    "content_type": lambda message, now: message.content_type or "",
    "body_size": lambda message, now: len(message.body),
    "enqueued_at": lambda message, now: moment(now),
    "visible_at": lambda message, now: moment(message.visible_from(now)),
}
"""The variables of a filter, each with the function that returns its value at the time `now`."""

BODY_VARIABLES: Mapping[str, Callable[[NewMessage, int], Any]] = {
    "body_text": lambda message, now: message.body.decode(errors="replace"),
    "body_json": lambda message, now: _json_object(message),
}
"""The variables that only filters of clients of the HTTP broker have."""


def _properties_of(message: NewMessage) -> Any:
    return json.loads(message.properties or "{}")


def _json_object(message: NewMessage) -> Any:
    """Return the body if it is a JSON object, and {} otherwise. Its numbers are floats."""
    if message.content_type and "json" not in message.content_type.lower():
        return {}
    try:
        document = json.loads(message.body, parse_int=float)
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


def check_filter(expression: str, *, translated: bool = False) -> None:
    """Raise ValueError if the expression is not a valid filter; '' matches everything.

    A filter that was translated from the language of a client of the HTTP broker may be longer and
    use BODY_VARIABLES.
    """
    if not isinstance(expression, str):
        raise TypeError(f"filter must be a CEL expression, not {safe_repr(expression)}")
    limit = MAX_TRANSLATED_FILTER if translated else MAX_FILTER
    if len(expression) > limit:
        raise ValueError(f"filter must have at most {limit} characters, not {len(expression)}")
    known = VARIABLES.keys() | BODY_VARIABLES if translated else VARIABLES.keys()
    unknown = compiled(expression).names - known if expression else set()
    if unknown:
        raise ValueError(
            f"filter {safe_repr(expression)} uses {', '.join(sorted(unknown)):.100}; the variables "
            f"are {', '.join(sorted(known))}."
        )


def matches(expression: str, variables: "FilterVariables", *, subscription: str) -> bool:
    """Return whether the filter matches the message; log an error in it and return False."""
    try:
        return evaluate(expression, variables)
    except ImproperlyConfigured:
        raise
    except Exception as error:  # noqa: BLE001 - a failing filter must not stop the publish
        # The text of an error may quote a value, and a body is never logged.
        sees_body = any(name in expression for name in BODY_VARIABLES)
        text = type(error).__name__ if sees_body else printable(str(error))
        logger.warning("The filter of subscription %s failed: %s", subscription, text)
        return False


def evaluate(expression: str, variables: "FilterVariables") -> bool:
    """Return whether the filter matches the message, or raise the error of the expression."""
    if not expression:
        return True
    result = compiled(expression).execute(variables)
    if not isinstance(result, bool):
        raise TypeError(f"the result is of type {type(result).__name__}, not true or false")
    return result


class FilterVariables(dict[str, Any]):
    """The values of the variables for a message, each computed when a filter uses it."""

    def __init__(self, message: NewMessage, now: int) -> None:
        super().__init__()
        self._message = message
        self._now = now

    def __missing__(self, name: str) -> Any:
        compute = VARIABLES.get(name) or BODY_VARIABLES[name]
        value = self[name] = compute(self._message, self._now)
        return value


def filter_variables(message: NewMessage, *, now: int) -> FilterVariables:
    """Return the variables of a filter for this message. Missing texts are ''."""
    return FilterVariables(message, now)


@dataclass(frozen=True, slots=True)
class Filter:
    """A compiled filter, the variables that it uses, and those of OWN_FUNCTIONS that it calls."""

    program: Any
    names: frozenset[str]
    functions: Mapping[str, Callable[..., Any]]

    def execute(self, variables: FilterVariables) -> Any:
        """Return the value of the expression for these variables."""
        values = {name: variables[name] for name in self.names}
        if self.functions:
            return self.program.execute(
                _cel().Context(variables=values, functions=dict(self.functions))
            )
        return self.program.execute(values)


@lru_cache(maxsize=1_024)
def compiled(expression: str) -> Filter:
    """Return the compiled expression. Raises ValueError for invalid syntax and high cost."""
    try:
        program = _cel().compile(expression)
    except ValueError as error:
        raise ValueError(
            f"filter {safe_repr(expression)} is not a valid CEL expression: {error!s:.300}"
        ) from error
    code = TEXT.sub(" ", expression)
    if code.count("+") > MAX_ADDITIONS:
        raise ValueError(f"A filter has at most {MAX_ADDITIONS} additions, not {code.count('+')}.")
    names = frozenset(program.variables()) - _loop_variables(code)
    called = OWN_FUNCTIONS.keys() & program.functions()
    return Filter(program, names, {name: OWN_FUNCTIONS[name] for name in called})


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
