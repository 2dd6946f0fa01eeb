"""Lossless encoding of task arguments as JSON, and the unique key of a call."""

import inspect
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import sha256
from inspect import Parameter
from string import Formatter
from typing import Any

from ..exceptions import MessageTooLarge
from ..guard import safe_repr
from ..message import encode_json, hint_for
from .compat import InvalidTask

MAX_DEPTH = 100
"""The deepest nesting of containers; a worker must be able to decode it on its stack."""

SCALARS = (type(None), bool, int, float)
CONTAINERS = (list, dict)


def encoded_call(
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    *,
    takes_context: bool,
    max_bytes: int,
) -> bytes:
    """Return the call as the body of a message.

    Raises TypeError, ValueError or MessageTooLarge, which name the argument. A value that JSON
    would change (a tuple, an enum, a key that is not a string) raises TypeError, so that the error
    is raised in the caller instead of the task.
    """
    _check_keys(kwargs, "kwargs")
    _bind(function, args, kwargs, takes_context=takes_context)
    arguments = {f"args[{index}]": value for index, value in enumerate(args)}
    arguments |= {f"argument {name!r}": value for name, value in kwargs.items()}
    for name, value in arguments.items():
        _check(value, name)
    try:
        body = encode_json({"args": list(args), "kwargs": dict(kwargs)}, "the call").encode()
    except ValueError:  # NaN, infinity, a lone surrogate or an integer of 5,000 digits
        for name, value in arguments.items():
            encode_json(value, name)
        raise
    if len(body) > max_bytes:
        raise _too_large(len(body), max_bytes, arguments)
    return body


def _bind(
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    *,
    takes_context: bool,
) -> inspect.BoundArguments:
    """Bind the arguments, with a context if it takes one, to the function's parameters."""
    try:
        # Not the signature of a wrapped function, which may accept other arguments.
        signature = inspect.signature(function, follow_wrapped=False)
        bound = signature.bind(*(["context"] if takes_context else []), *args, **kwargs)
    except TypeError as error:
        raise TypeError(
            f"{function.__qualname__}() does not take these arguments: {error}"
        ) from None
    return bound


def unique_key(
    task: Any, unique: bool | str | None, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> str | None:
    """Return the unique key of a call, or None if it has none.

    For `unique=True` it is the path of the task and a hash of the arguments; otherwise `unique` is
    a format string for the arguments. Passing an argument by name makes no difference. Raises
    InvalidTask if the format string does not fit the call.
    """
    if unique is None or unique is False:
        return None
    bound = _bind(task.func, args, kwargs, takes_context=task.takes_context)
    first = 1 if task.takes_context else 0
    if unique is True:
        encoded = json.dumps([bound.args[first:], bound.kwargs], sort_keys=True)
        return f"{task.module_path}:{sha256(encoded.encode()).hexdigest()}"
    bound.apply_defaults()
    by_name = {**bound.kwargs, **dict(list(bound.arguments.items())[first:])}
    try:
        return unique.format(*bound.args[first:], **by_name)
    except (LookupError, AttributeError, TypeError, ValueError) as error:
        raise InvalidTask(
            f"unique={unique!r} does not fit this call of {task.name}(): "
            f"{type(error).__name__}: {error}"
        ) from error


def check_unique(function: Callable[..., Any], unique: str, *, takes_context: bool) -> None:
    """Raise ValueError if `unique` is not a format string for arguments of the function."""
    signature = inspect.signature(function, follow_wrapped=False)
    parameters = list(signature.parameters.values())[1 if takes_context else 0 :]
    kinds = {parameter.kind for parameter in parameters}
    names = {parameter.name for parameter in parameters}
    positional = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    count = sum(parameter.kind in positional for parameter in parameters)
    for index, name in enumerate(_arguments_of(unique)):
        number = str(index) if name == "" else name
        if number.isdecimal():
            is_known = int(number) < count or Parameter.VAR_POSITIONAL in kinds
        else:
            is_known = name in names or Parameter.VAR_KEYWORD in kinds
        if not is_known:
            raise ValueError(
                f"unique={unique!r} refers to {{{number}}}, which is not an argument of "
                f"{function.__qualname__}{signature}"
            )


def _arguments_of(unique: str) -> list[str]:
    """Return the names and numbers of the arguments in a format string; "" for "{}"."""
    try:
        fields = [field for _, field, _, _ in Formatter().parse(unique) if field is not None]
    except ValueError as error:
        raise ValueError(f"unique={unique!r} is not a format string: {error}") from error
    return [re.split(r"[.\[]", field, maxsplit=1)[0] for field in fields]


def _too_large(size: int, limit: int, arguments: Mapping[str, Any]) -> MessageTooLarge:
    error = MessageTooLarge(size, limit)
    sizes = {name: len(encode_json(value, name)) for name, value in arguments.items()}
    if sizes:
        largest = max(sizes, key=lambda name: sizes[name])
        error.add_note(f"The largest of the arguments is {largest}.")
    return error


def _check(value: Any, name: str) -> None:
    for path, item in _nested(value):
        if len(path) > MAX_DEPTH:
            raise ValueError(
                f"{name} is nested more than {MAX_DEPTH} levels deep, or contains itself"
            )
        if type(item) is dict:
            _check_keys(item, _path_text(name, path))
        elif not _is_json(item):
            raise TypeError(_unsupported(item, _path_text(name, path)))


def _nested(value: Any) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Yield the value and every nested value, with the keys and indexes that lead to it."""
    pending: list[tuple[tuple[Any, ...], Any]] = [((), value)]
    while pending:
        path, item = pending.pop()
        yield path, item
        if type(item) is dict:
            pending += [((*path, key), part) for key, part in item.items()]
        elif type(item) is list:
            pending += [((*path, index), part) for index, part in enumerate(item)]


def _path_text(name: str, path: Sequence[Any]) -> str:
    return name + "".join(f"[{safe_repr(step)}]" for step in path)


def _is_json(item: Any) -> bool:
    """Allow subclasses of str, such as rendered templates, but not enums."""
    if isinstance(item, str):
        return not hasattr(type(item), "__members__")
    return type(item) in (*SCALARS, *CONTAINERS)


def _check_keys(item: Mapping[Any, Any], path: str) -> None:
    for key in item:
        if type(key) is not str:
            raise TypeError(
                f"{path} has the key {safe_repr(key)}, which is not a str. "
                "Unsupported type: JSON would change it; pass str(…)"
            )


def _unsupported(item: Any, path: str) -> str:
    kind = type(item)
    text = f"{path} is {safe_repr(item)}. Unsupported type: JSON would change or reject {kind}"
    return text + hint_for(item)
