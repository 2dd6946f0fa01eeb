"""A delivery ends alone, whatever its kind: no other is undone, delayed or changed by it."""

import asyncio
import contextlib
import gc
import sqlite3
import threading
import weakref
from collections import defaultdict
from contextlib import closing
from contextvars import ContextVar

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import Group
from django.db import connection, transaction
from django.utils import timezone, translation

from django_mqlite.handlers import Handler
from django_mqlite.logs import current_message
from django_mqlite.models import DeadLetter, Message
from django_mqlite.worker.options import WorkerOptions
from django_mqlite.worker.pool import Pool
from django_mqlite.worker.process import run_worker_process
from django_mqlite.worker.shutdown import Shutdown
from tests.support.flavours import FLAVOURS, HANDLERS, TASKS, Work
from tests.support.unruly_app import UNRULY

pytestmark = pytest.mark.django_db(transaction=True)

PATIENCE = 30

each_flavour = pytest.mark.parametrize("flavour", FLAVOURS)
each_parallel_flavour = pytest.mark.parametrize("flavour", [*HANDLERS, *TASKS])
"""Two atomic handlers never run at once."""


@pytest.fixture
def jobs(make_queue):
    make_queue("others")
    return make_queue("jobs", max_delivery_count=1)


def this_message() -> int:
    return current_message.get()[1]


# Beside another delivery


def end():
    """The neighbour has nothing to do."""


def fail_in_the_database():
    with connection.cursor() as cursor:
        cursor.execute("SELECT nothing FROM nowhere")


def turn_autocommit_off():
    transaction.set_autocommit(False)


@pytest.fixture
def finished(monkeypatch):
    """An event for each message, set when its delivery has ended and before it is settled."""
    events = defaultdict(threading.Event)

    def finish(pool, ended):
        events[ended.message.pk].set()
        usual(pool, ended)

    usual = Pool._finish
    monkeypatch.setattr(Pool, "_finish", finish)
    return events


@pytest.mark.parametrize("end_of_neighbour", [end, fail_in_the_database, turn_autocommit_off])
@each_parallel_flavour
def test_open_transaction_survives_the_end_of_a_neighbour(
    jobs, finished, flavour, end_of_neighbour
):
    is_inside = threading.Event()

    def act(message):
        if this_message() == neighbour:
            assert is_inside.wait(PATIENCE)
            end_of_neighbour()
        else:
            with transaction.atomic():
                Group.objects.create(name="first")
                Message.objects.enqueue("others", None)
                is_inside.set()
                assert finished[neighbour].wait(PATIENCE)
                Group.objects.create(name="second")

    work = Work(flavour, act)
    delivered, neighbour = work.enqueue(), work.enqueue()

    work.run(threads=2)

    assert set(Group.objects.values_list("name", flat=True)) == {"first", "second"}
    assert Message.objects.filter(queue="others").count() == 1
    assert not DeadLetter.objects.filter(pk=delivered).exists()


@each_parallel_flavour
def test_delivery_ends_while_a_neighbour_occupies_its_thread(jobs, finished, flavour):
    is_inside = threading.Event()

    def act(message):
        if this_message() == neighbour:
            is_inside.set()
            waited.append(finished[ended].wait(PATIENCE))
        else:
            assert is_inside.wait(PATIENCE)

    waited = []
    work = Work(flavour, act)
    neighbour, ended = work.enqueue(), work.enqueue()

    work.run(threads=2)

    assert waited == [True]


def test_coroutine_without_calls_ends_while_a_neighbour_blocks_a_thread(jobs, finished):
    (neighbour, ended) = Message.objects.enqueue_many("jobs", [None, None])
    waited = []

    async def handle(message):
        if message.pk == neighbour.pk:
            waited.append(await sync_to_async(finished[ended.pk].wait)(PATIENCE))

    worker = WorkerOptions(using="default", queues=("jobs",), burst=True, threads=2)
    run_worker_process(worker, {"jobs": Handler(queue="jobs", function=handle)}, Shutdown())

    assert waited == [True]


def test_error_that_two_coroutines_raise_ends_only_one_of_them(jobs, finished):
    """As those of a pool of connections: it has frames of both, and one of them goes on."""
    (first, second) = Message.objects.enqueue_many("jobs", [None, None])
    shared = ValueError("shared")
    went_on = []

    async def handle(message):
        if message.pk == second.pk:
            await raised.wait()
            raise shared
        try:
            raise shared
        except ValueError:
            pass
        raised.set()
        await asyncio.to_thread(finished[second.pk].wait, PATIENCE)
        went_on.append(message.pk)

    raised = asyncio.Event()
    worker = WorkerOptions(using="default", queues=("jobs",), burst=True, threads=2)
    run_worker_process(worker, {"jobs": Handler(queue="jobs", function=handle)}, Shutdown())

    assert went_on == [first.pk]
    assert [letter.pk for letter in DeadLetter.objects.all()] == [second.pk]


# What a delivery leaves open


def begin():
    with connection.cursor() as cursor:
        cursor.execute("BEGIN IMMEDIATE")


def begin_in_django():
    transaction.atomic().__enter__()


def begin_in_the_driver():
    transaction.set_autocommit(False)


@pytest.mark.parametrize("begin_one", [begin, begin_in_django, begin_in_the_driver])
@each_flavour
def test_delivery_that_leaves_a_transaction_open_fails(jobs, flavour, begin_one, caplog):
    if flavour == "atomic":
        begin_one = begin_in_django  # Django refuses the others, or SQLite does

    def leave_open(message):
        begin_one()
        Group.objects.create(name="never committed")

    work = Work(flavour, leave_open)
    left_open = work.enqueue()

    assert work.run().code == 0

    letter = DeadLetter.objects.get(pk=left_open)
    assert letter.dead_letter_reason == "MaxDeliveryCountExceeded"
    assert letter.errors[-1]["class"] == "django_mqlite.exceptions.TransactionLeftOpen"
    assert not Group.objects.exists()
    assert not [record for record in caplog.records if "remains settled" in record.getMessage()]


@pytest.mark.parametrize("processes", [1, 2])
def test_worker_process_fails_a_coroutine_that_leaves_a_transaction_open(database, processes):
    database.queue("leaves-open", max_delivery_count=1)
    left_open = database.enqueue("leaves-open")

    worker = database.start("--queues=leaves-open", "--burst", f"--processes={processes}", **UNRULY)

    assert worker.ended_well()
    (letter,) = database.dead_letters()
    assert letter.pk == left_open.pk
    assert letter.errors[-1]["class"] == "django_mqlite.exceptions.TransactionLeftOpen"
    assert database.effects() == []


@pytest.mark.parametrize("how", ["raises", "returns", "leaves open"])
@pytest.mark.parametrize("flavour", [*HANDLERS, "atomic"])
def test_settle_that_was_rolled_back_is_settled_by_how_the_delivery_ended(jobs, flavour, how):
    def complete_and_roll_back(message):
        if how == "leaves open":
            transaction.atomic().__enter__()
            message.complete()
        else:
            with contextlib.suppress(LookupError), transaction.atomic():
                message.complete()
                raise {"raises": ValueError, "returns": KeyError}[how]

    work = Work(flavour, complete_and_roll_back)
    number = work.enqueue()

    assert work.run().code == 0

    left = DeadLetter.objects.filter(pk=number).values_list("dead_letter_reason", flat=True)
    assert list(left) == ([] if how == "returns" else ["MaxDeliveryCountExceeded"])


# What a delivery passes on


class Large:
    """What a handler has in its frames."""


def fail_with(error):
    raise error


def store_twice():
    Group.objects.create(name="twice")
    Group.objects.create(name="twice")


FAILURES = {
    "its own": lambda: fail_with(ValueError("its own")),
    "a database's": store_twice,
    "a group": lambda: fail_with(ExceptionGroup("group", [ValueError("a"), KeyError("b")])),
}


@pytest.mark.parametrize("failure", FAILURES)
@each_flavour
def test_failed_delivery_is_freed_without_the_garbage_collector(jobs, flavour, failure):
    kept = []

    def hold_and_fail(message):
        large = Large()
        kept.append(weakref.ref(large))
        try:
            FAILURES[failure]()
        except Exception as error:
            large.error = error
            raise

    work = Work(flavour, hold_and_fail)
    work.enqueue()
    gc.collect()
    gc.disable()
    try:
        work.run()
        left = [large() for large in kept]
    finally:
        gc.enable()

    assert left == [None]


def read_half():
    names = Group.objects.values_list("name").iterator(chunk_size=1)
    next(names)
    return names


def write_half():
    cursor = connection.cursor()
    cursor.execute("INSERT INTO auth_group (name) VALUES ('x'), ('y'), ('z') RETURNING name")
    cursor.fetchone()
    return cursor


kept = []


@pytest.mark.parametrize("begin_query", [read_half, write_half])
@pytest.mark.parametrize("end_of_first", ["fails", "returns", "keeps"])
@each_flavour
def test_half_read_query_is_over_with_its_delivery(jobs, flavour, end_of_first, begin_query):
    Group.objects.bulk_create(Group(name=name) for name in "abcd")
    seen = []

    def act(message):
        if this_message() == first:
            names = begin_query()
            if end_of_first == "keeps":
                kept.append(names)
            if end_of_first == "fails":
                raise ValueError("half-way")
        else:
            Group.objects.create(name="effect")
            seen.append(checkpoint())
            kept.clear()  # before its connection is closed, or Python complains

    def checkpoint():
        if connection.in_atomic_block:
            return None
        with closing(sqlite3.connect(connection.settings_dict["NAME"])) as other:
            other.execute("DELETE FROM auth_group WHERE name = 'a'")
            other.commit()
            return other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]

    work = Work(flavour, act)
    first, second = work.enqueue(), work.enqueue()
    work.run()

    assert seen == [None if flavour == "atomic" else 0]
    assert Group.objects.filter(name="effect").exists()
    assert not DeadLetter.objects.filter(pk=second).exists()


job_variable = ContextVar("job_variable", default="nobody's")


def surroundings():
    zone = timezone.get_current_timezone_name()
    return translation.get_language(), zone, job_variable.get()


@each_flavour
def test_delivery_starts_in_the_context_and_locale_of_the_worker(jobs, flavour):
    seen = []

    def change_all(message):
        seen.append(surroundings())
        translation.activate("de")
        timezone.activate("Asia/Tokyo")
        job_variable.set("the delivery's")

    work = Work(flavour, change_all)
    for _ in range(3):
        work.enqueue()
    token = job_variable.set("the worker's")
    try:
        with translation.override("fr"), timezone.override("Europe/Paris"):
            work.run()
    finally:
        job_variable.reset(token)

    assert seen == [("fr", "Europe/Paris", "the worker's")] * 3


def test_delivery_without_a_language_has_none_like_the_worker(jobs):
    seen = []
    work = Work("plain", lambda message: seen.append(translation.get_language()))
    work.enqueue()

    with translation.override(None):
        work.run()

    assert seen == [None]
