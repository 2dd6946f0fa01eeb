"""Tasks that the tests enqueue."""

from collections.abc import Callable
from functools import wraps
from typing import Any

from asgiref.sync import sync_to_async
from django.contrib.auth.models import Group

from django_mqlite import Reject
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
def reject():
    raise Reject("NoSuchUser", "no user 7")


@task(takes_context=True)
def attempt(context, value):
    assert isinstance(context, TaskContext)
    seen.append((context.attempt, context.task_result.id, value))
    if context.attempt < 3:
        raise ValueError(context.attempt)
    return context.attempt


@task()
@task_options(max_attempts=2, backoff=30, ttl=3600)
def twice():
    raise ValueError("always")


failures: list[Exception] = []
"""The exceptions that the tasks below raise, one for each attempt."""


def act(name):
    """Write a row, and raise the next exception."""
    seen.append(name)
    Group.objects.create(name=f"{name} {len(seen)}")
    if failures:
        raise failures.pop(0)
    return name


def seconds_of(attempt):
    return attempt * 10


PICKY = {"retry_on": ConnectionError, "give_up_on": BrokenPipeError, "backoff": seconds_of}


@task()
@task_options(**PICKY)
def picky(name):
    return act(name)


@task()
@task_options(**PICKY)
async def picky_async(name):
    return await sync_to_async(act)(name)


@task()
@task_options(atomic=True, **PICKY)
def picky_atomic(name):
    return act(name)


@task()
@task_options(atomic=True)
def step(name, then=None):
    """Enqueue the next step in the transaction of this one."""
    if then:
        step.enqueue(then)
    return act(name)


@task()
@task_options(atomic=True)
def atomic_value(name):
    act(name)
    return object()


@task()
@task_options(timeout=90)
def limited(): ...


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

action: Callable[[], Any] = list
"""Tests set what perform() does."""


@task()
def perform():
    return action()


@task()
async def perform_async():
    return action()


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
