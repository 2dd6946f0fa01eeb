"""Tasks that the tests enqueue."""

from functools import wraps
from typing import Any

from django_mqlite import Reject, Retry
from django_mqlite.task_backend import task_options
from django_mqlite.task_backend.compat import TaskContext, task

seen: list[Any] = []
"""The arguments of calls, in order."""


@task()
def note(*args, **kwargs):
    seen.append((args, kwargs))


@task
def bare():
    return "bare"


@task()
async def note_async(*args, **kwargs):
    seen.append((args, kwargs))


@task()
def meaning_of_life():
    return 42


@task()
def echo(value):
    return value


@task()
def named(*, queue, task, delay, self):
    return [queue, task, delay, self]


@task()
def one_or_two(first, second=None):
    return [first, second]


def greeted(function):
    """Pass another argument to the function."""

    @wraps(function)
    def call(*args):
        return function("hello", *args)

    return call


@task()
@greeted
def greet(greeting, name):
    return f"{greeting} {name}"


@task()
def fail(times=10**6):
    seen.append("fail")
    if len(seen) <= times:
        raise ValueError("This task failed")
    return "at last"


@task()
async def fail_async():
    raise ValueError("This task failed")


@task()
def leave():
    raise SystemExit("This task left")


@task()
def interrupt():
    raise KeyboardInterrupt


@task()
def complex_error():
    raise ValueError(ValueError("This task failed"))


@task()
def reject():
    raise Reject("NoSuchUser", "no user 7")


@task()
def retry():
    raise Retry("not yet", delay=90)


class Unprintable(Exception):
    def __str__(self):
        raise RuntimeError("no text")


@task()
def unprintable_error():
    raise Unprintable


@task()
def complex_value():
    seen.append("complex_value")
    return complex(1, 2)


@task()
def large_value(size):
    return "x" * size


@task(takes_context=True)
def attempt(context):
    assert isinstance(context, TaskContext)
    seen.append((context.attempt, context.task_result.id))
    if context.attempt < 3:
        raise ValueError(context.attempt)
    return context.attempt


@task(takes_context=True)
def with_context(context, value):
    return [context.task_result.id, value]


@task()
@task_options(max_attempts=2, backoff=30, ttl=3600)
def twice():
    raise ValueError("always")


@task()
@task_options(unique=True)
def report(customer, kind="pdf", *, draft=False):
    seen.append((customer, kind, draft))


@task()
@task_options(unique="report-{0}")
async def report_async(customer, kind="pdf"):
    seen.append((customer, kind))


@task(takes_context=True)
@task_options(unique="{kind}-{0}")
def report_with_context(context, customer, kind="pdf"):
    seen.append((context.task_result.id, customer))


def not_a_task():
    seen.append("not_a_task")


def _hidden():
    """A task that is assigned to another name."""


other_name = task()(_hidden)

returned: Any = None


@task()
def give():
    return returned


@task()
def not_a_number():
    return {"a": float("nan")}


@task()
def number_keys():
    return {1: "one"}


@task()
def endless():
    value = []
    value.append(value)
    return value


@task()
def return_a_generator():
    return (number for number in range(3))


@task()
async def return_a_coroutine():
    coroutine = _never_run()
    coroutine.close()
    return coroutine


async def _never_run():
    raise AssertionError
