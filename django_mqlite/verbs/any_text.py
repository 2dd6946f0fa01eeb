"""Retries of reads that failed because another program wrote text that is not UTF-8."""

from collections.abc import Callable
from functools import partial, wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from django.db import OperationalError, connections

from ..store.sqlite.base import is_not_utf8, reading_any_text

P = ParamSpec("P")
S = TypeVar("S")
R = TypeVar("R")


def read_any_text(using: str, read: Callable[[], R]) -> R:
    """Return the result of `read`; on invalid UTF-8, read again with replacement characters."""
    try:
        return read()
    except OperationalError as error:
        if not is_not_utf8(error):
            raise
    with reading_any_text(connections[using]):
        return read()


def retry_with_any_text(verb: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
    """Decorate a verb so that text that is not UTF-8 is read with replacement characters.

    The verb runs again after the rollback. Its first parameter is an alias or a manager.
    """

    @wraps(verb)
    def run(first: S, /, *args: P.args, **options: P.kwargs) -> R:
        using: Any = first if isinstance(first, str) else first.database  # type: ignore[attr-defined]
        return read_any_text(using, partial(verb, first, *args, **options))

    return run
