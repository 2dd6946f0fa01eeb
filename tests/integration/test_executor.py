"""One message, one handler: how it ends, what is committed, and what is left behind."""

import asyncio
import contextlib
import logging
import sqlite3
from contextlib import closing
from types import SimpleNamespace

import pytest
from django.contrib.auth.models import Group
from django.db import IntegrityError, OperationalError, connection, connections, transaction

from django_mqlite import LockLost, Reject
from django_mqlite.handlers import Handler
from django_mqlite.worker import executor
from django_mqlite.worker.executor import Executor
from tests.support.verbs import enqueue_and_claim, state_of

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def message(queue):
    return enqueue_and_claim(queue, {"order": 1})


def run(function, message, *, atomic=False):
    handler = Handler(queue=message.queue, function=function, atomic=atomic)
    return Executor(handlers={message.queue: handler}, using="default").run(message)


def run_atomic(function, message):
    return run(function, message, atomic=True)


def work(message):
    Group.objects.create(name="effect")


def was_done() -> bool:
    return Group.objects.filter(name="effect").exists()


# How it ends


def test_a_handler_that_returns_leaves_the_settling_to_the_worker(message):
    finished = run(work, message)

    assert (finished.error, finished.settled) == (None, False)
    assert state_of(message) == "locked"


@pytest.mark.parametrize(
    "error", [ValueError(), Reject("Broken"), SystemExit(3), KeyboardInterrupt()], ids=repr
)
@pytest.mark.parametrize("atomic", [False, True])
def test_whatever_a_handler_raises_is_an_answer(message, error, atomic):
    def fail(message):
        raise error

    finished = run(fail, message, atomic=atomic)

    assert finished.error is error
    assert not finished.settled


@pytest.mark.parametrize(
    ("settle", "state"),
    [
        (lambda message: message.complete(), "gone"),
        (lambda message: message.abandon(), "scheduled"),
        (lambda message: message.reject("Broken"), "dead_lettered"),
    ],
    ids=["complete", "abandon", "reject"],
)
@pytest.mark.parametrize("atomic", [False, True])
def test_a_handler_may_settle_its_message_itself(message, settle, state, atomic):
    finished = run(settle, message, atomic=atomic)

    assert (finished.error, finished.settled) == (None, True)
    assert state_of(message) == state


def test_what_a_handler_raises_after_settling_is_still_told(message):
    def complete_and_fail(message):
        message.complete()
        raise ValueError

    finished = run(complete_and_fail, message)

    assert isinstance(finished.error, ValueError)
    assert finished.settled


# Atomic handlers


def test_effects_and_completion_commit_together(message):
    finished = run_atomic(work, message)

    assert (finished.error, finished.settled) == (None, True)
    assert was_done()
    assert state_of(message) == "gone"


def test_the_completion_is_not_seen_before_the_effects(message):
    seen = []

    def work_and_look(message):
        work(message)
        message.complete()
        with closing(sqlite3.connect(connection.settings_dict["NAME"])) as other:
            seen.extend(other.execute("SELECT state FROM mqlite_messages").fetchall())

    run_atomic(work_and_look, message)

    assert seen == [("locked",)]
    assert was_done()


@pytest.mark.parametrize("completes", [False, True], ids=["before", "after its own completion"])
def test_an_atomic_handler_that_raises_has_done_nothing(message, completes):
    def work_and_fail(message):
        work(message)
        if completes:
            message.complete()
        raise ValueError

    finished = run_atomic(work_and_fail, message)

    assert isinstance(finished.error, ValueError)
    assert not finished.settled
    assert not was_done()
    assert state_of(message) == "locked"


def test_lease_lost_in_an_atomic_handler_rolls_back_its_effects(message, queue, clock):
    def work_too_long(message):
        work(message)
        clock.advance(queue.lock_duration)

    finished = run_atomic(work_too_long, message)

    assert isinstance(finished.error, LockLost)
    assert not finished.settled
    assert not was_done()


def test_a_swallowed_database_error_does_not_commit_half_of_the_work(message):
    def work_badly(message):
        work(message)
        with contextlib.suppress(IntegrityError):
            work(message)  # the name is unique

    finished = run_atomic(work_badly, message)

    assert isinstance(finished.error, transaction.TransactionManagementError)
    assert not was_done()
    assert state_of(message) == "locked"


def test_a_hook_that_fails_after_the_commit_undoes_nothing(message):
    def fail():
        raise ValueError

    def work_with_a_hook(message):
        work(message)
        transaction.on_commit(fail)

    finished = run_atomic(work_with_a_hook, message)

    assert isinstance(finished.error, ValueError)
    assert finished.settled
    assert was_done()
    assert state_of(message) == "gone"


def test_atomic_handler_starts_with_the_write_lock_in_every_mode(message, monkeypatch):
    connection.ensure_connection()
    monkeypatch.setattr(connections["default"], "transaction_mode", "DEFERRED")
    refused = []

    def look_around(message):
        with closing(sqlite3.connect(connection.settings_dict["NAME"], timeout=0)) as other:
            with pytest.raises(sqlite3.OperationalError, match="locked") as error:
                other.execute("BEGIN IMMEDIATE")
            refused.append(error)

    finished = run_atomic(look_around, message)

    assert finished.error is None
    assert refused
    assert connection.transaction_mode == "DEFERRED"


# Coroutines


def test_a_coroutine_runs_to_its_end(message):
    async def work_async(message):
        await asyncio.sleep(0)
        await Group.objects.acreate(name="effect")

    finished = run(work_async, message)

    assert (finished.error, finished.settled) == (None, False)
    assert was_done()


@pytest.mark.parametrize(
    "error", [ValueError(), Reject("Broken"), SystemExit(3), KeyboardInterrupt()], ids=repr
)
def test_whatever_a_coroutine_raises_is_an_answer(message, error):
    async def fail(message):
        await asyncio.sleep(0)
        raise error

    finished = run(fail, message)

    assert type(finished.error) is type(error)
    assert not finished.settled


def test_a_function_that_returns_a_coroutine_is_waited_for(message):
    async def work_async(message):
        await Group.objects.acreate(name="effect")

    def decorated(message):
        return work_async(message)

    finished = run(decorated, message)

    assert finished.error is None
    assert was_done()


def test_a_coroutine_can_be_atomic(message):
    async def work_and_fail(message):
        await Group.objects.acreate(name="effect")
        raise ValueError

    finished = run_atomic(work_and_fail, message)

    assert isinstance(finished.error, ValueError)
    assert not was_done()


# Connections


def test_a_sqlite_connection_is_kept_for_the_next_message(message):
    connection.ensure_connection()
    opened = connection.connection

    run(work, message)

    assert connection.connection is opened


def test_a_connection_that_had_an_error_is_closed(message):
    def swallow_an_error(message):
        with pytest.raises(OperationalError), connection.cursor() as cursor:
            cursor.execute("SELECT nothing FROM nowhere")

    connection.ensure_connection()
    opened = connection.connection

    run(swallow_an_error, message)

    assert connection.connection is not opened


def leave_a_transaction_open(message):
    transaction.atomic().__enter__()
    work(message)


def turn_autocommit_off(message):
    transaction.set_autocommit(False)
    work(message)


@pytest.mark.parametrize("leave", [leave_a_transaction_open, turn_autocommit_off])
def test_what_a_handler_leaves_open_is_rolled_back_and_spoils_nothing(message, queue, leave):
    run(leave, message)

    assert not was_done()
    run(work, enqueue_and_claim(queue))
    with closing(sqlite3.connect(connections["default"].settings_dict["NAME"])) as other:
        assert other.execute("SELECT name FROM auth_group").fetchall() == [("effect",)]


def stub_connections(monkeypatch, *stubs):
    monkeypatch.setattr(
        executor, "connections", SimpleNamespace(all=lambda initialized_only: list(stubs))
    )


def test_a_connection_to_another_database_follows_djangos_rule(message, monkeypatch):
    closed = []
    other = SimpleNamespace(
        vendor="postgresql",
        queries_log=[],
        in_atomic_block=False,
        close_if_unusable_or_obsolete=lambda: closed.append(True),
    )
    stub_connections(monkeypatch, other)

    run(work, message)

    assert closed == [True]


def test_thread_survives_a_connection_that_cannot_be_closed(message, monkeypatch, caplog):
    def fail():
        raise ValueError

    class Connections(dict):
        def all(self, initialized_only):
            return list(self.values())

    broken = SimpleNamespace(
        alias="other",
        vendor="postgresql",
        queries_log=[],
        in_atomic_block=False,
        close_if_unusable_or_obsolete=fail,
    )
    found = Connections(other=broken)
    monkeypatch.setattr(executor, "connections", found)

    finished = run(work, message)

    assert finished.error is None
    assert found == {}
    assert [record.levelno for record in caplog.records] == [logging.ERROR]


def test_the_query_log_of_one_message_does_not_reach_the_next(message):
    query = {"sql": "SELECT 1", "time": "0"}
    seen = []

    run(lambda message: connection.queries_log.append(query), message)
    run(lambda message: seen.append(len(connection.queries_log)), message)

    assert seen == [0]
