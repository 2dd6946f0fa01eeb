"""One message, one handler: the result, what is committed, and what is left behind.

Effects and completion of an atomic handler: tests/conformance/test_3_atomic_handler.py. Errors of
the database and of callbacks: tests/integration/testing/test_drain_like_worker.py. Transactions
that a handler leaves open: test_delivery_context.py.
"""

import logging
import sqlite3
from types import SimpleNamespace

import pytest
from django.contrib.auth.models import Group
from django.db import OperationalError, connection, connections

from django_mqlite import Reject
from django_mqlite.handlers import Handler
from django_mqlite.worker import executor
from django_mqlite.worker.executor import Executor
from tests.support.steps import HANDLER_FLAVOURS, function_of
from tests.support.transactions import another_connection
from tests.support.verbs import enqueue_and_claim, state_of

pytestmark = pytest.mark.django_db(transaction=True)

each_flavour = pytest.mark.parametrize("flavour", [*HANDLER_FLAVOURS, "atomic coroutine"])


@pytest.fixture
def message(queue):
    return enqueue_and_claim(queue, {"order": 1})


def run(act, message, flavour="plain"):
    """Run a handler of the flavour; an atomic one may be a coroutine."""
    function = function_of("async" if flavour == "atomic coroutine" else flavour, act)
    handler = Handler(queue=message.queue, function=function, atomic="atomic" in flavour)
    return Executor(handlers={message.queue: handler}, using="default").run(message)


def work(message):
    Group.objects.create(name="effect")


def was_done() -> bool:
    return Group.objects.filter(name="effect").exists()


# The result


@each_flavour
def test_handler_that_returns_is_settled_with_its_transaction_or_later(message, flavour):
    result = run(work, message, flavour)

    assert (result.error, result.settled) == (None, "atomic" in flavour)
    assert was_done()
    assert state_of(message) == ("gone" if "atomic" in flavour else "locked")


@pytest.mark.parametrize(
    "error", [ValueError(), Reject("Broken"), SystemExit(3), KeyboardInterrupt()], ids=repr
)
@each_flavour
def test_error_of_a_handler_is_returned_and_an_atomic_one_rolled_back(message, error, flavour):
    async def fail_async(message):
        raise error

    def work_and_fail(message):
        work(message)
        raise error

    # asgiref does not return these errors from a thread.
    leaves = not isinstance(error, Exception)
    act = fail_async if leaves and flavour not in ("plain", "atomic") else work_and_fail

    result = run(act, message, flavour)

    assert type(result.error) is type(error)
    assert not result.settled
    assert was_done() == (act is work_and_fail and "atomic" not in flavour)
    assert state_of(message) == "locked"


@pytest.mark.parametrize(
    ("settle", "state"),
    [
        (lambda message: message.complete(), "gone"),
        (lambda message: message.abandon(), "scheduled"),
        (lambda message: message.reject("Broken"), "dead_lettered"),
    ],
    ids=["complete", "abandon", "reject"],
)
@each_flavour
def test_handler_may_settle_its_message_itself(message, settle, state, flavour):
    result = run(settle, message, flavour)

    assert (result.error, result.settled) == (None, True)
    assert state_of(message) == state


@each_flavour
def test_error_after_the_settle_is_returned_with_what_stays_settled(message, flavour):
    def complete_and_fail(message):
        work(message)
        message.complete()
        raise ValueError

    result = run(complete_and_fail, message, flavour)

    assert isinstance(result.error, ValueError)
    assert result.settled == was_done() == ("atomic" not in flavour)
    assert state_of(message) == ("locked" if "atomic" in flavour else "gone")


# Atomic handlers


def test_atomic_handler_starts_with_the_write_lock_in_every_mode(message, monkeypatch):
    connection.ensure_connection()
    monkeypatch.setattr(connections["default"], "transaction_mode", "DEFERRED")

    def begin(message):
        with (
            another_connection() as other,
            pytest.raises(sqlite3.OperationalError, match="locked"),
        ):
            other.execute("BEGIN IMMEDIATE")
        work(message)

    result = run(begin, message, "atomic")

    assert result.error is None
    assert was_done()
    assert connection.transaction_mode == "DEFERRED"


# Connections


def swallow_an_error(message):
    with pytest.raises(OperationalError), connection.cursor() as cursor:
        cursor.execute("SELECT nothing FROM nowhere")


@pytest.mark.parametrize(("act", "is_kept"), [(work, True), (swallow_an_error, False)])
def test_connection_without_errors_is_kept_for_the_next_message(message, act, is_kept):
    connection.ensure_connection()
    opened = connection.connection

    run(act, message)

    assert (connection.connection is opened) == is_kept


class Connections(dict):
    def all(self, initialized_only):
        return list(self.values())


def fail():
    raise ValueError


@pytest.mark.parametrize("fails", [False, True])
def test_connection_to_another_vendor_follows_djangos_rule(message, monkeypatch, caplog, fails):
    closed = []
    other = SimpleNamespace(
        alias="other",
        vendor="postgresql",
        queries_log=[],
        in_atomic_block=False,
        close_if_unusable_or_obsolete=fail if fails else lambda: closed.append(True),
    )
    by_alias = Connections(other=other)
    monkeypatch.setattr(executor, "connections", by_alias)

    result = run(work, message)

    assert result.error is None
    assert (closed, list(by_alias)) == (([], []) if fails else ([True], ["other"]))
    assert [record.levelno for record in caplog.records] == [logging.ERROR] * fails


def test_query_log_of_a_message_does_not_reach_the_next(message):
    query = {"sql": "SELECT 1", "time": "0"}
    lengths = []

    run(lambda message: connection.queries_log.append(query), message)
    run(lambda message: lengths.append(len(connection.queries_log)), message)

    assert lengths == [0]
