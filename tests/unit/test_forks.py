"""ForkGuard behaves like the coroutine that it runs, as long as nothing is forked."""

import asyncio
import gc
import inspect
import warnings
import weakref

import pytest

from django_mqlite.worker.forks import ForkGuard, new_event_loop


@pytest.fixture
def loop():
    loop = new_event_loop()
    yield loop
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()


async def echo(value):
    await asyncio.sleep(0)
    return value


async def fail(error):
    await asyncio.sleep(0)
    raise error


def test_guarded_coroutine_returns_and_raises_like_its_own(loop):
    async def run():
        assert await ForkGuard(echo(1)) == 1
        with pytest.raises(KeyError):
            await ForkGuard(fail(KeyError()))

    loop.run_until_complete(run())


def test_task_of_guarded_loop_is_cancelled_with_its_clean_up(loop):
    seen = []

    async def wait():
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            await asyncio.sleep(0)
            seen.append("cleaned up")
            raise

    async def run():
        task = asyncio.create_task(wait(), name="waiting")
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return task.get_name()

    assert loop.run_until_complete(run()) == "waiting"
    assert seen == ["cleaned up"]


def test_task_cancelled_before_its_start_warns_of_nothing(loop):
    async def run():
        task = asyncio.create_task(echo(1))
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loop.run_until_complete(run())
        gc.collect()


def test_task_of_guarded_loop_shows_its_coroutine(loop):
    async def run():
        task = asyncio.create_task(echo(1))
        await asyncio.sleep(0)
        shown = repr(task)
        (frame,) = task.get_stack()
        state = inspect.getcoroutinestate(task.get_coro())
        await task
        return shown, frame.f_code.co_name, state

    shown, name, state = loop.run_until_complete(run())

    assert "echo" in shown
    assert (name, state) == ("echo", inspect.CORO_SUSPENDED)


def test_task_of_guarded_loop_refuses_what_is_not_a_coroutine(loop):
    async def run():
        await asyncio.create_task(5)

    with pytest.raises(TypeError, match="coroutine was expected"):
        loop.run_until_complete(run())


def test_error_thrown_into_a_guard_is_freed_without_the_garbage_collector():
    guard = ForkGuard(echo(1))
    guard.send(None)

    gc.disable()
    try:
        assert weak_error_of(guard)() is None
    finally:
        gc.enable()


class Thrown(Exception):
    """An error that can have weak references."""


def weak_error_of(guard):
    """Throw an error into the guard, and return a weak reference to it."""
    try:
        guard.throw(Thrown())
    except Thrown as error:
        return weakref.ref(error)
