"""Repeat what failed because another program has written text that is not UTF-8."""

from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from django.db import OperationalError, connections

from ..store.sqlite.base import is_not_utf8, reading_any_text

P = ParamSpec("P")
S = TypeVar("S")
R = TypeVar("R")


def retry_with_any_text(verb: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
    """Call the verb again, reading such text with replacement characters, if it has met some.

    The verb's transaction was rolled back by then. Its first parameter is an alias or a manager.
    """

    @wraps(verb)
    def run(first: S, /, *args: P.args, **options: P.kwargs) -> R:
        try:
            return verb(first, *args, **options)
        except OperationalError as error:
            if not is_not_utf8(error):
                raise
        using: Any = first if isinstance(first, str) else first.database  # type: ignore[attr-defined]
        with reading_any_text(connections[using]):
            return verb(first, *args, **options)

    return run
