"""Encoding of task arguments as JSON, without loss or with an error that names the argument."""

import inspect
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ..exceptions import MessageTooLarge
from ..guard import shown
from ..message import encode_json

MAX_DEPTH = 100
"""The deepest nesting of containers; a worker must be able to decode it on its stack."""

SCALARS = (type(None), bool, int, float)
CONTAINERS = (list, dict)

HINTS = {
    "tuple": "pass a list",
    "set": "pass a list",
    "frozenset": "pass a list",
    "datetime": "pass .isoformat()",
    "date": "pass .isoformat()",
    "time": "pass .isoformat()",
    "timedelta": "pass .total_seconds()",
    "Decimal": "pass str(…)",
    "UUID": "pass str(…)",
    "bytes": "pass text, base64 say",
    "__proxy__": "a lazy string: pass str(…), in the language it is meant in",
    "QuerySet": "pass the primary keys",
    "QueryDict": "pass .dict() or dict(….lists())",
}
"""Advice for unsupported values, by the name of their type."""


def encoded_call(
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    *,
    takes_context: bool,
    max_bytes: int,
) -> bytes:
    """The call as the body of a message; TypeError, ValueError, MessageTooLarge name the argument.

    Strict on purpose: what JSON would turn into something else (tuples, enums, keys that are not
    strings) is refused here, where the caller sees it, and not found out by the task.
    """
    _check_keys(kwargs, "kwargs")
    try:
        # Of the function itself, not of one that it wraps and may call differently.
        signature = inspect.signature(function, follow_wrapped=False)
        signature.bind(*(["context"] if takes_context else []), *args, **kwargs)
    except TypeError as error:
        raise TypeError(f"{function.__qualname__}() cannot be called so: {error}") from None
    named = {f"args[{place}]": value for place, value in enumerate(args)}
    named |= {f"argument {name!r}": value for name, value in kwargs.items()}
    for name, value in named.items():
        _check(value, name)
    # This raises for integers of 5,000 digits and for lone surrogates.
    body = encode_json({"args": list(args), "kwargs": dict(kwargs)}, "the call").encode()
    if len(body) > max_bytes:
        raise _too_large(len(body), max_bytes, named)
    return body


def _too_large(size: int, limit: int, named: Mapping[str, Any]) -> MessageTooLarge:
    refused = MessageTooLarge(size, limit)
    sizes = {name: len(encode_json(value, name)) for name, value in named.items()}
    if sizes:
        largest = max(sizes, key=lambda name: sizes[name])
        refused.add_note(f"The largest of the arguments is {largest}.")
    return refused


def _check(value: Any, name: str) -> None:
    for trail, item in _places(value):
        if len(trail) > MAX_DEPTH:
            raise ValueError(f"{name} is nested more than {MAX_DEPTH} deep, or contains itself")
        if type(item) is dict:
            _check_keys(item, _path(name, trail))
        elif type(item) is float:
            if not math.isfinite(item):
                raise ValueError(f"{_path(name, trail)} is {item}, which JSON does not have")
        elif not _is_json(item):
            raise TypeError(_refusal(item, _path(name, trail)))


def _places(value: Any) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Yield every nested value, with the keys and indexes that lead to it."""
    waiting: list[tuple[tuple[Any, ...], Any]] = [((), value)]
    while waiting:
        trail, item = waiting.pop()
        yield trail, item
        if type(item) is dict:
            waiting += [((*trail, key), part) for key, part in item.items()]
        elif type(item) is list:
            waiting += [((*trail, place), part) for place, part in enumerate(item)]


def _path(name: str, trail: Sequence[Any]) -> str:
    return name + "".join(f"[{shown(step)}]" for step in trail)


def _is_json(item: Any) -> bool:
    """A str may be of a subclass, as what a template renders is; but an enum is more than text."""
    if isinstance(item, str):
        return not hasattr(type(item), "__members__")
    return type(item) in (*SCALARS, *CONTAINERS)


def _check_keys(item: Mapping[Any, Any], path: str) -> None:
    for key in item:
        if type(key) is not str:
            raise TypeError(
                f"{path} has the key {shown(key)}, which is not a str: JSON would make it one. "
                "Unsupported type of a key; pass str(…)"
            )


def _refusal(item: Any, path: str) -> str:
    kind = type(item)
    said = f"{path} is {shown(item)}. Unsupported type: JSON does not give back {kind}"
    if hasattr(kind, "__members__"):
        return f"{said}; pass .value"
    if hasattr(kind, "_meta") and hasattr(item, "pk"):
        return f"{said}; pass .pk and load it in the task"
    hint = HINTS.get(kind.__name__)
    return f"{said}; {hint}" if hint else said
