"""Async twins of the verbs, for coroutines: `await message.acomplete()`."""

from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from asgiref.sync import sync_to_async
from django.core.exceptions import SynchronousOnlyOperation

S = TypeVar("S")
P = ParamSpec("P")
R = TypeVar("R")


def has_async_twin(verb: Callable[P, R]) -> Callable[P, R]:
    """Name the async twin in the error that Django raises in an event loop."""

    @wraps(verb)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return verb(*args, **kwargs)
        except SynchronousOnlyOperation as error:
            name = verb.__name__
            raise SynchronousOnlyOperation(
                f"{name}() cannot be called in an event loop: use `await a{name}()`, or call "
                f"{name}() in a function that sync_to_async() runs."
            ) from error

    return call


def async_twin(
    verb: Callable[Concatenate[S, P], R],
) -> Callable[Concatenate[S, P], Coroutine[Any, Any, R]]:
    """Return the coroutine function `a<verb>()`, which runs the verb in the synchronous thread.

    All coroutines of a request, of a delivery or of a test share one such thread, so the verb uses
    the connection and joins the transaction of their other synchronous code. If the coroutine is
    cancelled during the call, the verb has been executed or is about to be.
    """
    name = verb.__name__

    @wraps(verb)
    async def twin(self: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
        result: R = await sync_to_async(getattr(self, name))(*args, **kwargs)
        return result

    twin.__name__ = f"a{name}"
    twin.__qualname__ = verb.__qualname__.removesuffix(name) + twin.__name__
    twin.__doc__ = f"Run {name}() from a coroutine; the arguments, result and errors are the same."
    return twin
