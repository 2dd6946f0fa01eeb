"""No verb leaves a transaction open, and each reads the time with the write lock held."""

import pytest
from django.db import OperationalError, connection, connections, transaction

from django_mqlite import QueueNotFound, TopicNotFound, enqueue, enqueue_many, publish
from django_mqlite.models import DeadLetter, Message, Queue, Subscription
from django_mqlite.timing import moment, use_clock
from django_mqlite.transactions import write_transaction
from tests.support.transactions import another_connection, another_writer_gets_in
from tests.support.verbs import activate, claim_ids, claim_one, dead_letter, enqueue_and_claim, reap

pytestmark = pytest.mark.django_db(transaction=True)

VERBS = {
    "enqueue": lambda: enqueue("jobs", None),
    "claim one": lambda: Message.objects.claim("jobs"),
    "claim a batch": lambda: Message.objects.claim("jobs", limit=100),
    "claim nothing": lambda: Message.objects.claim("empty"),
    "claimable": Message.objects.claimable,
    "complete": lambda: enqueue_and_claim("jobs").complete(),
    "complete many": lambda: Message.objects.complete_many(Message.objects.claim("jobs", limit=9)),
    "abandon": lambda: enqueue_and_claim("jobs").abandon(error=ValueError("x")),
    "reject": lambda: enqueue_and_claim("jobs").reject("R"),
    "renew": lambda: enqueue_and_claim("jobs").renew(),
    "redrive": lambda: DeadLetter.objects.redrive_queue("jobs"),
    "purge": lambda: DeadLetter.objects.purge_queue("jobs", everything=True),
    "peek": lambda: Message.objects.peek("jobs", limit=1),
    "peek dead letters": lambda: DeadLetter.objects.peek("jobs", limit=1),
    "stats": Queue.objects.stats,
    "declare": lambda: Queue.objects.create_queue("jobs", lock_duration=5),
    "pause": lambda: Queue.objects.get(name="empty").pause(),
    "release": lambda: reap(limit=1),
    "activate": lambda: activate(limit=1),
}


@pytest.fixture
def busy(clock, queue, make_queue):
    """Several rows for each verb, so that a cursor which was not drained is noticed."""
    make_queue("empty")
    for _ in range(3):
        dead_letter("jobs")
        enqueue_and_claim("jobs")
    clock.advance(30)
    for _ in range(5):
        enqueue("jobs", None)
        enqueue("jobs", None, delay=1)
    clock.advance(1)


@pytest.mark.parametrize("verb", VERBS)
def test_verb_leaves_no_open_transaction(busy, verb):
    VERBS[verb]()

    assert not connection.connection.in_transaction
    assert another_writer_gets_in()


def test_failed_verb_leaves_no_open_transaction(busy):
    for fail in (
        lambda: enqueue("nowhere", None),
        lambda: Message.objects.claim("nowhere"),
        lambda: DeadLetter.objects.redrive_queue("nowhere"),
    ):
        with pytest.raises(QueueNotFound):
            fail()

        assert not connection.connection.in_transaction
        assert another_writer_gets_in()


def test_claimed_batch_holds_no_write_lock(busy):
    batch = Message.objects.claim("jobs", limit=5)

    with another_connection() as other:
        other.execute("UPDATE mqlite_queues SET updated_at = 7 WHERE name = 'empty'")

    assert Message.objects.complete_many(batch) == [True] * len(batch)


def test_read_does_not_block_a_checkpoint(busy):
    """With an open read transaction, the WAL would grow."""
    for verb in ("peek", "peek dead letters", "stats", "claimable"):
        VERBS[verb]()

        with another_connection() as other:
            other.execute("UPDATE mqlite_queues SET updated_at = updated_at + 1")
            assert other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0


class WatchfulClock:
    """Records whether this process held the write lock at each read of the time."""

    def __init__(self, clock):
        self.clock = clock
        self.lock_held = []

    def now_ms(self):
        self.lock_held.append(not another_writer_gets_in())
        return self.clock.now_ms()


TIMED = {
    "enqueue": lambda message: enqueue("jobs", None),
    "enqueue in a window": lambda message: enqueue("windowed", None),
    "enqueue many": lambda message: enqueue_many("jobs", [1, 2]),
    "publish": lambda message: publish("orders", None),
    "claim": lambda message: Message.objects.claim("jobs"),
    "claim and delete": lambda message: Message.objects.claim_and_delete("jobs"),
    "complete": lambda message: message.complete(),
    "abandon": lambda message: message.abandon(),
    "reject": lambda message: message.reject("R"),
    "renew": lambda message: message.renew(),
    "defer": lambda message: message.defer(),
    "run now": lambda message: Message.objects.run_now(enqueue("jobs", None, delay=9).pk),
    "redrive": lambda message: DeadLetter.objects.redrive([dead_letter("jobs").pk]),
    "pause": lambda message: Queue.objects.get(name="jobs").pause(),
    "configure": lambda message: Queue.objects.configure("jobs", lock_duration=9),
    "subscribe": lambda message: Subscription.objects.subscribe("orders", "mailing"),
}


@pytest.fixture
def timed(busy, make_queue):
    """Everything that the verbs of TIMED need; a claimed message."""
    make_queue("windowed", dedup_window=60)
    Subscription.objects.subscribe("orders", "stock", filter="")
    Message.objects.claim("jobs", limit=100)
    return enqueue_and_claim("jobs")


@pytest.mark.rule("2.3")
@pytest.mark.parametrize("mode", ["DEFERRED", "IMMEDIATE", None])
@pytest.mark.parametrize("verb", TIMED)
def test_time_is_read_with_the_write_lock_held(timed, clock, monkeypatch, verb, mode):
    monkeypatch.setattr(connections["default"], "transaction_mode", mode)

    with use_clock(WatchfulClock(clock)) as watchful:
        TIMED[verb](timed)

    assert watchful.lock_held
    assert all(watchful.lock_held)
    assert connection.transaction_mode == mode


@pytest.mark.rule("3.7")
@pytest.mark.parametrize("mode", ["DEFERRED", "IMMEDIATE"])
@pytest.mark.parametrize("verb", sorted(set(TIMED) - {"claim", "redrive"}))
def test_time_in_atomic_is_read_with_the_lock_held(timed, clock, monkeypatch, verb, mode):
    monkeypatch.setattr(connections["default"], "transaction_mode", mode)

    with use_clock(WatchfulClock(clock)) as watchful, transaction.atomic():
        TIMED[verb](timed)

    assert watchful.lock_held
    assert all(watchful.lock_held)


def just_before_the_lock(*statements):
    """Let another connection commit while this one waits for the write lock."""
    pending = list(statements)

    def wrapper(execute, sql, *arguments):
        while sql.startswith("BEGIN") and pending:
            with another_connection() as other:
                other.execute(pending.pop(0))
        return execute(sql, *arguments)

    return connection.execute_wrapper(wrapper)


@pytest.mark.rule("9.2")
@pytest.mark.parametrize("left", [["mailing"], []], ids=["another is left", "none is left"])
def test_publish_reads_the_subscriptions_with_the_write_lock_held(clock, db, left):
    for subscription in [*left, "stock"]:
        Subscription.objects.subscribe("orders", subscription)
    unsubscribe = [
        "DELETE FROM mqlite_subscriptions WHERE subscription = 'stock'",
        "DELETE FROM mqlite_queues WHERE name = 'stock'",
    ]

    with just_before_the_lock(*unsubscribe):
        if left:
            assert [message.queue for message in publish("orders", None)] == left
        else:
            with pytest.raises(TopicNotFound):
                publish("orders", None)


@pytest.mark.rule("1.2")
def test_enqueued_at_never_decreases_from_id_to_id(clock, queue):
    """A message that waits for the lock is younger than those stored in the meantime."""
    stored_meanwhile = """
        INSERT INTO mqlite_messages (queue, enqueued_at, body)
        VALUES ('jobs', %d, x'')"""
    at = clock.now_ms() + 1_600

    with just_before_the_lock(stored_meanwhile % at):
        wait = connection.execute_wrapper(
            lambda execute, sql, *rest: (
                (sql.startswith("BEGIN") and clock.advance(1.6)) or execute(sql, *rest)
            )
        )
        with wait:
            message = enqueue("jobs", None, ttl=1)

    assert message.enqueued_at == moment(at)
    assert claim_ids("jobs") == [message.pk - 1, message.pk]


@pytest.mark.parametrize("mode", ["DEFERRED", "IMMEDIATE", None])
def test_own_transaction_begins_immediate_in_any_mode(busy, monkeypatch, mode):
    monkeypatch.setattr(connections["default"], "transaction_mode", mode)
    statements = []

    def watch(execute, sql, *arguments):
        statements.append(sql)
        return execute(sql, *arguments)

    with connection.execute_wrapper(watch):
        Message.objects.claim("jobs")
        claim_one("jobs").complete()

    begins = [sql for sql in statements if sql.startswith("BEGIN")]
    assert set(begins) <= {"BEGIN IMMEDIATE"}
    assert len(begins) == 3
    assert connection.transaction_mode == mode


@pytest.mark.parametrize("mode", ["DEFERRED", "EXCLUSIVE", None])
def test_transaction_mode_is_restored_after_an_error(busy, monkeypatch, mode):
    monkeypatch.setattr(connections["default"], "transaction_mode", mode)

    with (
        pytest.raises(KeyboardInterrupt),
        write_transaction("default"),
        write_transaction("default"),
    ):
        raise KeyboardInterrupt
    with (
        connection.execute_wrapper(refuse),
        pytest.raises(OperationalError),
        write_transaction("default"),
    ):
        raise AssertionError("the transaction began")

    assert connection.transaction_mode == mode


def refuse(execute, sql, *arguments):
    """Raise the error of a write lock that another process keeps for too long."""
    if sql.startswith("BEGIN"):
        raise OperationalError("database is locked")
    return execute(sql, *arguments)
