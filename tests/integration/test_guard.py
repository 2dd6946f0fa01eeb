"""Code of the project that raises anything, anywhere, fails only its own delivery."""

import asyncio
import contextlib
import ctypes
import logging
import threading
from contextlib import contextmanager

import pytest
from django.db import connection
from django.db.models.signals import post_init

from django_mqlite import Reject, enqueue, enqueue_many, handler, handlers, signals
from django_mqlite.exceptions import HandlerThreadDied
from django_mqlite.logs import current_message
from django_mqlite.models import DeadLetter, Message
from django_mqlite.testing import drain
from django_mqlite.worker import executor
from django_mqlite.worker.pool import Pool
from django_mqlite.worker.shutdown import Shutdown
from tests.integration.tasks import calls
from tests.support.odd_errors import ODD_ERRORS, DelayRaises, TextInterrupts
from tests.support.steps import TASKS, Work, run_handler, work
from tests.support.verbs import enqueue_and_claim, row_of, state_of

pytestmark = pytest.mark.django_db(transaction=True)

ASYNC = ("async", "async task")
each_flavour = pytest.mark.parametrize("flavour", ["plain", "atomic", "async", *TASKS])


@pytest.fixture
def jobs(make_queue):
    return make_queue("jobs", max_delivery_count=1, retain_completed=3_600)


def for_flavour(flavour, act):
    """Return the function, as a coroutine for an async flavour."""

    async def act_async(message):
        await asyncio.sleep(0)
        return act(message)

    return act_async if flavour in ASYNC else act


class Deliveries:
    """Two deliveries of the flavour, of which the bad one raises the error."""

    def __init__(self, flavour, raise_error):
        def act(message):
            if current_message.get().id == self.bad:
                return raise_error()
            return None

        self.work = Work(flavour, for_flavour(flavour, act))
        self.bad, self.good = self.work.enqueue(), self.work.enqueue()

    def run(self):
        assert self.work.run(threads=2).code == 0

    def error_of_bad(self):
        """Return the only error of the bad delivery; check that the good one is completed."""
        assert Message.objects.get(pk=self.good).state == "completed"
        letter = DeadLetter.objects.get()
        assert letter.pk == self.bad
        (error,) = letter.errors
        assert "HandlerThreadDied" not in error["class"]
        return error


def raising(error):
    """Return a function that raises an error of this class."""

    def fail(*arguments, **facts):
        raise error()

    return fail


# Errors


@pytest.mark.parametrize("error", ODD_ERRORS)
@each_flavour
def test_odd_error_fails_only_its_own_delivery(jobs, error, flavour):
    deliveries = Deliveries(flavour, raising(error))

    deliveries.run()

    deliveries.error_of_bad()


@pytest.mark.parametrize(
    # With drain() a KeyboardInterrupt may be that of the person who runs the tests.
    "error",
    [error for error in ODD_ERRORS if error not in (DelayRaises, TextInterrupts)],
)
def test_odd_error_in_drain_fails_only_its_own_delivery(jobs, error, monkeypatch):
    monkeypatch.setattr(handlers, "_handlers", {})
    handler("jobs")(lambda message: raising(error)() if message.data == "bad" else None)
    bad, good = enqueue_many("jobs", ["bad", "good"])

    drain()

    assert [state_of(bad), state_of(good)] == ["dead_lettered", "completed"]


class TextNotes(Exception):
    """Notes whether its text was read in a transaction."""

    def __init__(self):
        self.transactions = []

    def __str__(self):
        self.transactions.append(connection.in_atomic_block)
        return "a text"


@pytest.mark.parametrize(
    "settle",
    [
        lambda message, error: message.abandon(error=error),
        lambda message, error: message.reject("Broken", error),
        lambda message, error: message.reject(error),
        lambda message, error: message.reject("Broken", error=error),
    ],
    ids=["abandon", "description", "reason", "reject"],
)
def test_verb_reads_an_errors_text_outside_its_transaction(queue, settle):
    """The text is code of the project; no writer waits for it."""
    error = TextNotes()

    settle(enqueue_and_claim("jobs"), error)

    assert set(error.transactions) == {False}


@pytest.mark.parametrize(
    "wrap", [lambda error: error, lambda error: Reject("Broken", error)], ids=["error", "reject"]
)
def test_worker_reads_an_errors_text_outside_its_transactions(queue, wrap):
    error = TextNotes()
    Message.objects.enqueue("jobs", None)

    run_handler(raising(lambda: wrap(error)))

    assert set(error.transactions) == {False}


def test_reject_with_an_unreadable_description_settles_the_message(queue):
    class Unreadable:
        __str__ = raising(RuntimeError)

    enqueue_and_claim("jobs").reject("Broken", Unreadable())

    assert "RuntimeError" in DeadLetter.objects.get().dead_letter_description


# Receivers, log handlers and messages


@contextmanager
def connected(signal, receiver, **options):
    signal.connect(receiver, **options)
    try:
        yield
    finally:
        signal.disconnect(receiver, **options)


@pytest.mark.parametrize("error", [ValueError, SystemExit, asyncio.CancelledError])
@pytest.mark.parametrize(
    "signal", [signals.message_completed, signals.message_dead_lettered, signals.message_abandoned]
)
def test_receiver_that_raises_fails_no_delivery(jobs, error, signal):
    bad, good = enqueue_many("jobs", ["bad", "good"])
    twice = enqueue("jobs", "twice", max_delivery_count=2)
    receiver = raising(error)

    def handle(message):
        if message.data == "twice" and message.delivery_count == 1:
            message.abandon(delay=0)
        elif message.data == "bad":
            raise RuntimeError

    with connected(signal, receiver):
        assert run_handler(handle, threads=2).code == 0

    states = [state_of(message) for message in (bad, good, twice)]
    assert states == ["dead_lettered", "completed", "completed"]


@pytest.mark.parametrize("error", [ValueError, SystemExit])
@pytest.mark.parametrize("name", ["django_mqlite", ""])
def test_log_handler_that_raises_fails_no_delivery(jobs, error, name, capsys):
    """At the root logger it also breaks Django's report of a receiver that raises."""
    broken = logging.Handler()
    broken.emit = raising(error)
    receiver = raising(ValueError)
    deliveries = Deliveries("plain", raising(RuntimeError))
    logger = logging.getLogger(name)
    logger.addHandler(broken)
    try:
        with connected(signals.message_completed, receiver):
            deliveries.run()
    finally:
        logger.removeHandler(broken)

    deliveries.error_of_bad()
    assert f"a log handler raised {error.__name__}" in capsys.readouterr().err


@pytest.mark.parametrize("error", [ValueError, SystemExit])
@pytest.mark.parametrize("flavour", ["plain", "atomic", "async"])
def test_unreadable_message_fails_and_the_others_are_handled(jobs, error, flavour):
    def refuse(sender, instance, **facts):
        if instance.pk == deliveries.bad and instance.claimed_token is None:
            raise error("unreadable")

    deliveries = Deliveries(flavour, raising(AssertionError))

    with connected(post_init, refuse, sender=Message):
        deliveries.run()

    assert deliveries.error_of_bad()["message"] == "unreadable"


# Threads that die


def kill(thread: threading.Thread) -> None:
    """Raise SystemExit in the thread, as libraries do to enforce a timeout."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(
        ctypes.c_ulong(thread.ident), ctypes.py_object(SystemExit)
    )


@pytest.fixture
def quiet(monkeypatch):
    """Threads may die without a report."""
    monkeypatch.setattr(threading, "excepthook", lambda arguments: None)


@pytest.mark.usefixtures("quiet")
def test_killed_idle_threads_are_replaced_and_cost_no_delivery(jobs):
    messages = enqueue_many("jobs", range(20))
    killed = []

    def handle(message):
        for thread in threading.enumerate() if message.data == 0 else ():
            is_handler = thread.name.startswith("mqlite-handler")
            if is_handler and thread is not threading.current_thread():
                kill(thread)
                killed.append(thread)

    assert run_handler(handle, threads=2).code == 0

    assert killed
    assert {state_of(message) for message in messages} == {"completed"}


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("threads", [1, 2])
def test_thread_that_dies_fails_its_delivery_and_is_replaced(jobs, threads, monkeypatch):
    """It dies in the worker's own code, after the handler, where no delivery catches errors."""
    clean_up = executor.clean_up_connections
    is_bad = [False, False, True]

    def die():
        if is_bad.pop():
            raise SystemExit
        return clean_up()

    monkeypatch.setattr(executor, "clean_up_connections", die)
    messages = enqueue_many("jobs", range(3))

    assert run_handler(lambda message: None, threads=threads).code == 0

    states = sorted(state_of(message) for message in messages)
    assert states == ["completed", "completed", "dead_lettered"]
    letter = DeadLetter.objects.get()
    assert letter.errors[0]["class"] == "django_mqlite.exceptions.HandlerThreadDied"


def kill_threads(name: str) -> list[threading.Thread]:
    """Kill the other threads whose name starts so, and return them."""
    others = [t for t in threading.enumerate() if t is not threading.current_thread()]
    killed = [thread for thread in others if thread.name.startswith(name)]
    for thread in killed:
        kill(thread)
    return killed


@pytest.mark.parametrize("flavour", ASYNC)
def test_killed_idle_thread_of_coroutines_costs_no_delivery(jobs, flavour, monkeypatch):
    killed = []
    finish = Pool._finish

    def kill_and_finish(pool, result):
        killed.extend(kill_threads("mqlite-sync"))
        finish(pool, result)

    async def count(message):
        await Message.objects.acount()

    monkeypatch.setattr(Pool, "_finish", kill_and_finish)
    work = Work(flavour, count)
    delivered = {work.enqueue() for _ in range(4)}

    assert work.run().code == 0

    assert killed
    assert {m.pk for m in Message.objects.filter(state="completed")} == delivered


@pytest.mark.parametrize("flavour", ASYNC)
def test_thread_that_dies_between_calls_of_a_coroutine_fails_its_delivery(jobs, flavour):
    """Its connection, perhaps with an open transaction, has ended with it."""

    async def call_and_kill(message):
        await Message.objects.acount()
        if current_message.get().id == bad:
            kill_threads("mqlite-sync")
        with contextlib.suppress(HandlerThreadDied):
            await Message.objects.acount()

    work = Work(flavour, call_and_kill)
    bad, good = work.enqueue(), work.enqueue()

    assert work.run().code == 0

    assert Message.objects.get(pk=good).state == "completed"
    letter = DeadLetter.objects.get()
    assert (letter.pk, len(letter.errors)) == (bad, 1)
    assert letter.errors[0]["class"] == "django_mqlite.exceptions.HandlerThreadDied"


# Coroutines that disturb the event loop


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
    neighbour, guilty, later = enqueue_many("jobs", ["wait", "bad", "good"])
    is_over = asyncio.Event()

    async def handle(message):
        if message.data == "bad":
            await disturb(error())
        elif message.data == "wait":
            async with asyncio.timeout(30):
                await is_over.wait()
        else:
            is_over.set()

    assert run_handler(handle, threads=2).code == 0

    assert [state_of(neighbour), state_of(later)] == ["completed", "completed"]
    errors = [(letter.pk, letter.errors[0]["class"]) for letter in DeadLetter.objects.all()]
    assert errors == ([(guilty.pk, f"builtins.{error.__name__}")] if disturb in FAILING else [])


@pytest.mark.usefixtures("quiet")
def test_loop_that_cannot_go_on_ends_the_worker_with_a_failure(queue):
    message = enqueue("jobs", None)

    async def break_the_loop(message):
        loop = asyncio.get_running_loop()
        loop.run_forever = None
        loop.stop()
        await asyncio.sleep(60)

    assert run_handler(break_the_loop, shutdown_timeout=0.1).code == 1

    row = row_of(message)
    assert (row["state"], row["delivery_count"], row["interruptions"]) == ("active", 0, 1)


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("error", [SystemExit, RuntimeError])
def test_loop_that_handlers_disturb_while_closing_is_closed(queue, error):
    message = enqueue("jobs", None)
    shutdown = Shutdown()

    async def refuse_and_exit(message):
        task = asyncio.create_task(asyncio.sleep(60))
        await refuse_tasks(error())
        shutdown.request()
        try:
            await task
        finally:
            asyncio.get_running_loop().call_soon(raising(error))

    assert run_handler(refuse_and_exit, shutdown=shutdown, shutdown_timeout=0.1).code == 0

    assert row_of(message)["interruptions"] == 1


# Handlers whose body has not run


def a_generator():
    yield


async def an_async_generator():
    yield


async def a_coroutine():
    raise AssertionError("never awaited")


@pytest.mark.parametrize("make", [a_generator, an_async_generator, a_coroutine])
@pytest.mark.parametrize("flavour", ["plain", "atomic", "async"])
def test_delivery_that_returns_what_has_not_run_fails(jobs, make, flavour):
    if make is a_coroutine and flavour != "async":
        pytest.skip("a coroutine that a function returns is awaited")
    returned = []

    def return_unfinished(message):
        returned.append(make())
        return returned[-1]

    handle = for_flavour(flavour, return_unfinished)
    bad = enqueue("jobs", None)

    assert run_handler(handle, atomic=flavour == "atomic").code == 0

    assert row_of(bad)["errors"][0]["class"] == "django_mqlite.exceptions.NothingHasRun"
    for value in returned if make is a_coroutine else ():
        value.close()


@pytest.mark.parametrize("name", ["return_a_generator", "return_a_coroutine"])
def test_task_that_returns_what_has_not_run_fails(make_queue, name):
    make_queue("default", max_delivery_count=1)
    result = getattr(calls, name).enqueue()

    work()

    result.refresh()
    assert result.errors[0].exception_class_path == "django_mqlite.exceptions.NothingHasRun"


def test_delivery_in_drain_that_returns_what_has_not_run_fails(jobs, monkeypatch):
    monkeypatch.setattr(handlers, "_handlers", {})
    handler("jobs")(lambda message: a_generator())
    message = enqueue("jobs", None)

    drain()

    assert row_of(message)["errors"][0]["class"] == "django_mqlite.exceptions.NothingHasRun"
