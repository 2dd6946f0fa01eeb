"""Code of the project runs under a guard wherever a worker calls it, and stops nobody."""

import asyncio
import ctypes
import logging
import threading
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
from django.db.models.signals import post_init

from django_mqlite import enqueue, enqueue_many, handler, handlers, signals
from django_mqlite.handlers import Handler
from django_mqlite.models import DeadLetter, Message
from django_mqlite.testing import drain
from django_mqlite.worker import executor
from django_mqlite.worker.options import WorkerOptions
from django_mqlite.worker.process import run_worker_process
from django_mqlite.worker.shutdown import Shutdown
from tests.integration.tasks import calls
from tests.support.odd_errors import ODD_ERRORS, DelayRaises, TextInterrupts
from tests.support.verbs import row_of, state_of

pytestmark = pytest.mark.django_db(transaction=True)


def work(function, *, threads=2, atomic=False, stop=None, **options):
    """A burst of a worker of one process."""
    worker = WorkerOptions(
        using="default", queues=("jobs",), burst=True, threads=threads, **options
    )
    of_queue = {"jobs": Handler(queue="jobs", function=function, atomic=atomic)}
    return run_worker_process(worker, of_queue, stop or Shutdown())


@pytest.fixture
def jobs(make_queue):
    return make_queue("jobs", max_delivery_count=1)


def raising(error):
    """A handler of messages that are to fail and of those that are not."""

    def handle(message):
        if message.data == "bad":
            raise error()

    return handle


def raising_async(error):
    async def handle(message):
        await asyncio.sleep(0)
        raising(error)(message)

    return handle


def enqueue_pair():
    return enqueue("jobs", "bad"), enqueue("jobs", "good")


def assert_bad_failed_and_good_is_done(bad, good):
    """By its own error: that its thread died of it would be noticed, too."""
    row = row_of(bad)
    assert row["state"] == "dead_lettered"
    assert len(row["errors"]) == 1
    assert "HandlerThreadDied" not in row["errors"][0]["class"]
    assert state_of(good) == "gone"


# Errors


@pytest.mark.parametrize("error", ODD_ERRORS)
@pytest.mark.parametrize("flavour", ["plain", "atomic", "async"])
def test_an_odd_error_fails_its_own_delivery_only(jobs, error, flavour):
    make = raising_async if flavour == "async" else raising
    bad, good = enqueue_pair()

    assert work(make(error), atomic=flavour == "atomic").code == 0

    assert_bad_failed_and_good_is_done(bad, good)


@pytest.mark.parametrize("error", ODD_ERRORS)
@pytest.mark.parametrize("name", ["raise_odd", "raise_odd_async"])
def test_an_odd_error_of_a_task_fails_its_own_delivery_only(make_queue, error, name):
    make_queue("default", max_delivery_count=1)
    getattr(calls, name).enqueue(error.__name__)
    calls.note.enqueue()
    worker = WorkerOptions(using="default", queues=("default",), burst=True, threads=2)

    assert run_worker_process(worker, {}, Shutdown()).code == 0

    assert sorted(Message.objects.values_list("state", flat=True)) == ["completed", "dead_lettered"]


@pytest.mark.parametrize(
    # With drain() a KeyboardInterrupt may be that of who runs the tests.
    "error",
    [error for error in ODD_ERRORS if error not in (DelayRaises, TextInterrupts)],
)
def test_an_odd_error_in_drain_fails_its_own_delivery_only(jobs, error, monkeypatch):
    monkeypatch.setattr(handlers, "_handlers", {})
    handler("jobs")(raising(error))
    bad, good = enqueue_pair()

    drain()

    assert_bad_failed_and_good_is_done(bad, good)


# What is called after the commit


@contextmanager
def listening(signal, receiver):
    signal.connect(receiver)
    try:
        yield
    finally:
        signal.disconnect(receiver)


@pytest.mark.parametrize("error", [ValueError, SystemExit, asyncio.CancelledError])
@pytest.mark.parametrize(
    "signal", [signals.message_completed, signals.message_dead_lettered, signals.message_abandoned]
)
def test_a_receiver_that_raises_stops_nobody(jobs, error, signal):
    def receive(**facts):
        raise error

    messages = [*enqueue_pair(), enqueue("jobs", "good", max_delivery_count=2)]

    def handle(message):
        if message.max_delivery_count == 2 and message.delivery_count == 1:
            message.abandon(delay=0)
        elif message.data == "bad":
            raise RuntimeError

    with listening(signal, receive):
        assert work(handle).code == 0

    assert [state_of(message) for message in messages] == ["dead_lettered", "gone", "gone"]


class Broken(logging.Handler):
    """A handler of logs that raises instead of calling handleError()."""

    error: type[BaseException]

    def emit(self, record):
        raise self.error


@pytest.mark.parametrize("error", [ValueError, SystemExit])
@pytest.mark.parametrize("name", ["django_mqlite", ""])
def test_a_log_handler_that_raises_stops_nobody(jobs, error, name, capsys):
    """At the root it breaks Django's own report of a receiver that raises as well."""
    broken = Broken()
    broken.error = error

    def receive(**facts):
        raise ValueError

    bad, good = enqueue_pair()
    logger = logging.getLogger(name)
    logger.addHandler(broken)
    try:
        with listening(signals.message_completed, receive):
            assert work(raising(RuntimeError)).code == 0
    finally:
        logger.removeHandler(broken)

    assert_bad_failed_and_good_is_done(bad, good)
    assert f"a log handler raised {error.__name__}" in capsys.readouterr().err


@pytest.mark.parametrize("error", [ValueError, SystemExit])
@pytest.mark.parametrize("flavour", ["plain", "atomic", "async"])
def test_a_message_that_cannot_be_read_fails_and_the_others_are_handled(jobs, error, flavour):
    def refuse(sender, instance, **facts):
        if bytes(instance.body) == b"bad" and instance.claimed_token is None:
            raise error("unreadable")

    bad, good = enqueue_pair()
    make = raising_async if flavour == "async" else raising
    post_init.connect(refuse, sender=Message)
    try:
        assert work(make(AssertionError), atomic=flavour == "atomic").code == 0
    finally:
        post_init.disconnect(refuse, sender=Message)

    assert_bad_failed_and_good_is_done(bad, good)
    assert row_of(bad)["errors"][0]["message"] == "unreadable"


# Threads and loops that die


def kill(thread: threading.Thread) -> None:
    """Raise SystemExit in the thread, as libraries do that give threads a timeout."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(
        ctypes.c_ulong(thread.ident), ctypes.py_object(SystemExit)
    )


def handler_threads() -> list[threading.Thread]:
    named = [t for t in threading.enumerate() if t.name.startswith("mqlite-handler")]
    return [thread for thread in named if thread is not threading.current_thread()]


@pytest.fixture
def quiet(monkeypatch):
    """Threads may die."""
    monkeypatch.setattr(threading, "excepthook", lambda arguments: None)


@pytest.mark.usefixtures("quiet")
def test_idle_threads_that_are_killed_are_replaced_and_cost_no_delivery(make_queue):
    make_queue("jobs", max_delivery_count=1)
    messages = enqueue_many("jobs", range(20))
    killed = []

    def handle(message):
        if message.data == 0:
            for thread in handler_threads():
                kill(thread)
                killed.append(thread)

    assert work(handle, threads=2).code == 0

    assert killed
    assert {state_of(message) for message in messages} == {"gone"}


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("threads", [1, 2])
def test_thread_that_dies_fails_its_delivery_and_is_replaced(jobs, threads, monkeypatch):
    """In the worker's own code, after the handler: where no `except` of a delivery is."""
    tidy = executor.clean_up_connections

    def die():
        if bad_runs.pop():
            raise SystemExit
        return tidy()

    bad_runs = [False, False, True]
    monkeypatch.setattr(executor, "clean_up_connections", die)
    messages = enqueue_many("jobs", range(3))

    assert work(lambda message: None, threads=threads).code == 0

    states = sorted(state_of(message) for message in messages)
    assert states == ["dead_lettered", "gone", "gone"]
    (letter,) = DeadLetter.objects.all()
    assert letter.errors[0]["class"] == "django_mqlite.exceptions.HandlerThreadDied"


# What a handler does to the event loop


async def exit_at_once(error):
    raise error


async def exit_in_wait_for(error):
    await asyncio.wait_for(exit_at_once(error), 60)


async def exit_in_gather(error):
    await asyncio.gather(exit_at_once(error), asyncio.sleep(0))


async def exit_in_task(error):
    await asyncio.create_task(exit_at_once(error))


async def exit_in_task_group(error):
    async with asyncio.TaskGroup() as group:
        group.create_task(exit_at_once(error))


async def exit_in_lost_task(error):
    task = asyncio.create_task(exit_at_once(error))
    while not task.done():  # noqa: ASYNC110 - anything else would await it
        await asyncio.sleep(0)


async def exit_in_callback(error):
    def leave():
        left.set()
        raise error

    left = asyncio.Event()
    asyncio.get_running_loop().call_soon(leave)
    await left.wait()


async def stop_loop(error):
    asyncio.get_running_loop().stop()
    await asyncio.sleep(0)


async def refuse_tasks(error):
    def refuse(loop, coroutine, **options):
        coroutine.close()
        raise error

    asyncio.get_running_loop().set_task_factory(refuse)


FAILING = [exit_in_wait_for, exit_in_gather, exit_in_task, exit_in_task_group]
RETURNING = [exit_in_lost_task, exit_in_callback, stop_loop, refuse_tasks]


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt])
@pytest.mark.parametrize("disturb", [*FAILING, *RETURNING], ids=lambda disturb: disturb.__name__)
def test_handler_that_disturbs_the_loop_ends_alone(jobs, disturb, error):
    neighbour, guilty, later = (enqueue("jobs", data) for data in ("wait", "bad", "good"))
    is_over = asyncio.Event()

    async def handle(message):
        if message.data == "bad":
            await disturb(error())
        elif message.data == "wait":
            async with asyncio.timeout(30):
                await is_over.wait()
        else:
            is_over.set()

    assert work(handle, threads=2).code == 0

    assert [state_of(neighbour), state_of(later)] == ["gone", "gone"]
    errors = [(letter.pk, letter.errors[0]["class"]) for letter in DeadLetter.objects.all()]
    assert errors == ([(guilty.pk, f"builtins.{error.__name__}")] if disturb in FAILING else [])


@pytest.mark.usefixtures("quiet")
def test_loop_that_cannot_go_on_ends_the_worker_with_a_failure(make_queue):
    make_queue("jobs")
    message = enqueue("jobs", None)

    async def break_the_loop(message):
        loop = asyncio.get_running_loop()
        loop.run_forever = None
        loop.stop()
        await asyncio.sleep(60)

    assert work(break_the_loop, threads=1, shutdown_timeout=0.1).code == 1

    row = row_of(message)
    assert (row["state"], row["delivery_count"], row["interruptions"]) == ("active", 0, 1)


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("error", [SystemExit, RuntimeError])
def test_loop_that_handlers_disturb_while_closing_is_closed(make_queue, error):
    make_queue("jobs")
    message = enqueue("jobs", None)

    async def refuse_and_exit(message):
        task = asyncio.create_task(asyncio.sleep(60))
        await refuse_tasks(error())
        stop.request()
        try:
            await task
        finally:
            asyncio.get_running_loop().call_soon(raising(error), SimpleNamespace(data="bad"))

    stop = Shutdown()
    assert work(refuse_and_exit, threads=1, stop=stop, shutdown_timeout=0.1).code == 0

    assert row_of(message)["interruptions"] == 1


# Handlers whose body has not run


def a_generator(message):
    yield


async def an_async_generator(message):
    yield


async def a_coroutine(message):
    raise AssertionError("never awaited")


@pytest.mark.parametrize("make", [a_generator, an_async_generator, a_coroutine])
@pytest.mark.parametrize("flavour", ["plain", "atomic", "async"])
def test_a_delivery_that_returns_what_has_not_run_has_failed(jobs, make, flavour):
    if make is a_coroutine and flavour != "async":
        pytest.skip("a coroutine that a function returns is awaited")
    bad = enqueue("jobs", "bad")

    def handle(message):
        returned = make(message)
        unfinished.append(returned)
        return returned

    async def handle_async(message):
        return handle(message)

    unfinished = []
    function = handle_async if flavour == "async" else handle

    assert work(function, atomic=flavour == "atomic").code == 0

    row = row_of(bad)
    assert row["state"] == "dead_lettered"
    assert row["errors"][0]["class"] == "django_mqlite.exceptions.NothingHasRun"
    for returned in unfinished:
        if make is a_coroutine:
            returned.close()


@pytest.mark.parametrize("name", ["return_a_generator", "return_a_coroutine"])
def test_a_task_that_returns_what_has_not_run_has_failed(make_queue, name):
    make_queue("default", max_delivery_count=1)
    result = getattr(calls, name).enqueue()
    worker = WorkerOptions(using="default", queues=("default",), burst=True, threads=1)

    assert run_worker_process(worker, {}, Shutdown()).code == 0

    result.refresh()
    assert result.errors[0].exception_class_path == "django_mqlite.exceptions.NothingHasRun"


def test_drain_fails_what_has_not_run_as_well(jobs, monkeypatch):
    monkeypatch.setattr(handlers, "_handlers", {})
    handler("jobs")(lambda message: (step for step in [message]))
    message = enqueue("jobs", None)

    drain()

    assert row_of(message)["errors"][0]["class"] == "django_mqlite.exceptions.NothingHasRun"
