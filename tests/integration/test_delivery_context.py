"""A delivery of any flavour ends alone: it does not undo, delay or change another one."""

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

from django_mqlite.logs import current_message
from django_mqlite.models import DeadLetter, Message
from django_mqlite.worker.pool import Pool
from tests.support.steps import (
    EVERY_FLAVOUR,
    HANDLER_FLAVOURS,
    PARALLEL_FLAVOURS,
    Work,
    run_handler,
)

pytestmark = pytest.mark.django_db(transaction=True)

TIMEOUT = 30

each_flavour = pytest.mark.parametrize("flavour", EVERY_FLAVOUR)
each_parallel_flavour = pytest.mark.parametrize("flavour", PARALLEL_FLAVOURS)


@pytest.fixture
def jobs(make_queue):
    make_queue("others")
    return make_queue("jobs", max_delivery_count=1)


def message_id() -> int:
    """Return the id of the message that is delivered, also to a task."""
    return current_message.get()[1]


# Beside another delivery


def end():
    """Let the neighbour end at once."""


def fail_in_the_database():
    with connection.cursor() as cursor:
        cursor.execute("SELECT nothing FROM nowhere")


def turn_autocommit_off():
    transaction.set_autocommit(False)


@pytest.fixture
def finished(monkeypatch):
    """An event for each message, set when its delivery has ended and before it is settled."""
    events = defaultdict(threading.Event)
    original = Pool._finish

    def finish(pool, result):
        events[result.message.pk].set()
        original(pool, result)

    monkeypatch.setattr(Pool, "_finish", finish)
    return events


@pytest.mark.parametrize("end_neighbour", [end, fail_in_the_database, turn_autocommit_off])
@each_parallel_flavour
def test_open_transaction_survives_the_end_of_a_neighbour(jobs, finished, flavour, end_neighbour):
    is_inside = threading.Event()

    def act(message):
        if message_id() == neighbour:
            assert is_inside.wait(TIMEOUT)
            end_neighbour()
        else:
            with transaction.atomic():
                Group.objects.create(name="first")
                Message.objects.enqueue("others", None)
                is_inside.set()
                assert finished[neighbour].wait(TIMEOUT)
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
    results = []

    def act(message):
        if message_id() == neighbour:
            is_inside.set()
            results.append(finished[delivered].wait(TIMEOUT))
        else:
            assert is_inside.wait(TIMEOUT)

    work = Work(flavour, act)
    neighbour, delivered = work.enqueue(), work.enqueue()

    work.run(threads=2)

    assert results == [True]


def test_coroutine_without_calls_ends_while_a_neighbour_blocks_a_thread(jobs, finished):
    neighbour, delivered = Message.objects.enqueue_many("jobs", [None, None])
    results = []

    async def handle(message):
        if message.pk == neighbour.pk:
            results.append(await sync_to_async(finished[delivered.pk].wait)(TIMEOUT))

    run_handler(handle, threads=2)

    assert results == [True]


def test_error_that_two_coroutines_raise_ends_only_one_of_them(jobs, finished):
    """A pool of connections shares errors: they have frames of both, and one of them goes on."""
    first, second = Message.objects.enqueue_many("jobs", [None, None])
    shared = ValueError("shared")
    raised = asyncio.Event()
    completed = []

    async def handle(message):
        if message.pk == second.pk:
            await raised.wait()
            raise shared
        with contextlib.suppress(ValueError):
            raise shared
        raised.set()
        await asyncio.to_thread(finished[second.pk].wait, TIMEOUT)
        completed.append(message.pk)

    run_handler(handle, threads=2)

    assert completed == [first.pk]
    assert [letter.pk for letter in DeadLetter.objects.all()] == [second.pk]


# What a delivery leaves open


def begin():
    with connection.cursor() as cursor:
        cursor.execute("BEGIN IMMEDIATE")


def begin_in_django():
    transaction.atomic().__enter__()


@pytest.mark.parametrize("begin_transaction", [begin, begin_in_django, turn_autocommit_off])
@each_flavour
def test_delivery_that_leaves_a_transaction_open_fails(jobs, flavour, begin_transaction, caplog):
    if flavour == "atomic":
        begin_transaction = begin_in_django  # Django refuses the others, or SQLite does

    def act(message):
        if message_id() == left_open:
            begin_transaction()
            Group.objects.create(name="rolled back")
        else:
            Group.objects.create(name="committed")

    work = Work(flavour, act)
    left_open, following = work.enqueue(), work.enqueue()

    assert work.run().code == 0

    letter = DeadLetter.objects.get()
    assert (letter.pk, letter.dead_letter_reason) == (left_open, "MaxDeliveryCountExceeded")
    assert letter.errors[-1]["class"] == "django_mqlite.exceptions.TransactionLeftOpen"
    assert [group.name for group in Group.objects.all()] == ["committed"]
    assert not Message.objects.filter(pk=following, state="active").exists()
    assert "remains settled" not in caplog.text


@pytest.mark.parametrize("end", ["raises", "returns", "leaves open", "commits"])
@pytest.mark.parametrize("flavour", HANDLER_FLAVOURS)
def test_settle_by_the_handler_counts_only_after_its_commit(jobs, flavour, end):
    def settle(message):
        if end == "leaves open":
            transaction.atomic().__enter__()
            message.reject("Own")
            return
        with contextlib.suppress(LookupError), transaction.atomic():
            message.reject("Own")
            if end != "commits":
                raise {"raises": ValueError, "returns": KeyError}[end]

    work = Work(flavour, settle)
    message = work.enqueue()

    assert work.run().code == 0

    reasons = DeadLetter.objects.filter(pk=message).values_list("dead_letter_reason", flat=True)
    failed = ["MaxDeliveryCountExceeded"]
    assert list(reasons) == {"returns": [], "commits": ["Own"]}.get(end, failed)


# What a delivery passes on


class Large:
    """An object in a frame of the handler."""


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
    references = []

    def hold_and_fail(message):
        large = Large()
        references.append(weakref.ref(large))
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
        objects = [reference() for reference in references]
    finally:
        gc.enable()

    assert objects == [None]


def read_half():
    names = Group.objects.values_list("name").iterator(chunk_size=1)
    next(names)
    return names


def write_half():
    cursor = connection.cursor()
    cursor.execute("INSERT INTO auth_group (name) VALUES ('x'), ('y'), ('z') RETURNING name")
    cursor.fetchone()
    return cursor


@pytest.mark.parametrize("begin_query", [read_half, write_half])
@pytest.mark.parametrize("end_of_first", ["fails", "returns", "keeps"])
@each_flavour
def test_half_read_query_ends_with_its_delivery(jobs, flavour, end_of_first, begin_query):
    Group.objects.bulk_create(Group(name=name) for name in "abcd")
    checkpoints = []
    kept = []

    def act(message):
        if message_id() == first:
            query = begin_query()
            if end_of_first == "keeps":
                kept.append(query)
            if end_of_first == "fails":
                raise ValueError("half-way")
        else:
            Group.objects.create(name="effect")
            checkpoints.append(checkpoint())
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

    assert checkpoints == [None if flavour == "atomic" else 0]
    assert Group.objects.filter(name="effect").exists()
    assert not DeadLetter.objects.filter(pk=second).exists()


variable = ContextVar("variable", default="of nothing")


def locale_and_context():
    zone = timezone.get_current_timezone_name()
    return translation.get_language(), zone, variable.get()


@each_flavour
def test_delivery_starts_in_the_context_and_locale_of_the_worker(jobs, flavour):
    seen = []

    def change_all(message):
        seen.append(locale_and_context())
        translation.activate("de")
        timezone.activate("Asia/Tokyo")
        variable.set("of the delivery")

    work = Work(flavour, change_all)
    for _ in range(3):
        work.enqueue()
    token = variable.set("of the worker")
    try:
        with translation.override("fr"), timezone.override("Europe/Paris"):
            work.run()
        with translation.override(None):
            work.enqueue()
            work.run()
    finally:
        variable.reset(token)

    assert seen[:3] == [("fr", "Europe/Paris", "of the worker")] * 3
    assert [language for language, _, _ in seen[3:]] == [None]
