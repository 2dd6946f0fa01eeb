"""The one writer of a worker process, step by step."""

import logging
import sqlite3
from contextlib import closing, contextmanager
from datetime import timedelta
from types import SimpleNamespace

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from django_mqlite import Reject, Retry
from django_mqlite.managers import MessageManager
from django_mqlite.models import Message
from django_mqlite.types import State
from django_mqlite.worker import consumer as consumer_module
from django_mqlite.worker.consumer import REAP_AFTER_COMMIT, REAP_DELAY_LIMIT, Consumer
from django_mqlite.worker.database_errors import FIRST_RETRY_DELAY
from django_mqlite.worker.executor import DeliveryResult
from django_mqlite.worker.options import WorkerOptions
from django_mqlite.worker.reaper import Reaper
from django_mqlite.worker.shutdown import Shutdown
from django_mqlite.worker.wakeup import SLOW_POLL, Wakeup
from tests.support.verbs import reap, row_of, state_of

pytestmark = pytest.mark.django_db(transaction=True)


class Hands:
    """A pool whose handlers end when the test says so."""

    def __init__(self, threads):
        self.threads = threads
        self.running = []
        self._finished = []

    @property
    def free(self):
        return self.threads - len(self.running)

    def start(self, message):
        self.running.append(message)

    def end(self, message, error=None):
        self._finished.append(DeliveryResult(message=message, error=error))

    def take_finished(self):
        taken, self._finished = self._finished, []
        for finished in taken:
            self.running.remove(finished.message)
        return taken


@pytest.fixture
def pool():
    return Hands(threads=2)


@pytest.fixture
def stop():
    return Shutdown()


@pytest.fixture
def make_consumer(pool, stop):
    """A consumer of the queue `jobs`, or of what the options say."""
    with closing(Wakeup("default")) as wakeup:

        def make(*, reaper=False, entry=None, renewer=None, **options):
            return Consumer(
                WorkerOptions(**{"using": "default", "queues": ("jobs",), **options}),
                pool=pool,
                wakeup=wakeup,
                shutdown=stop,
                reaper=Reaper("default") if reaper else None,
                entry=entry,
                renewer=renewer,
            )

        yield make


def enqueue(queue, count, **options):
    return [Message.objects.enqueue(str(queue), None, **options) for _ in range(count)]


def settle_down(consumer) -> float:
    """Poll until it rests; for how long."""
    while (rest := consumer.poll()) == 0:
        pass
    return rest


def ids(messages):
    return [message.pk for message in messages]


@contextmanager
def another_writer():
    """Holds the write lock; who waits for it fails at once."""
    with (
        connection.cursor() as cursor,
        closing(sqlite3.connect(connection.settings_dict["NAME"])) as other,
    ):
        cursor.execute("PRAGMA busy_timeout = 0")
        other.execute("BEGIN IMMEDIATE")
        yield
        other.rollback()


# Claiming


def test_consumer_claims_for_free_threads_only(make_consumer, pool, queue):
    messages = enqueue(queue, 5)

    settle_down(make_consumer())

    assert ids(pool.running) == ids(messages[:2])
    assert [state_of(message) for message in messages[2:]] == ["active"] * 3


def test_the_lease_names_the_worker(make_consumer, pool, queue):
    (message,) = enqueue(queue, 1)

    settle_down(make_consumer(name="host:1:abcd"))

    assert row_of(message)["locked_by"] == "host:1:abcd"


def test_queues_are_served_strictly_in_their_order(make_consumer, pool, queue, make_queue):
    make_queue("first")
    late = enqueue(queue, 2)
    early = enqueue("first", 1)

    settle_down(make_consumer(queues=("first", "jobs")))

    assert ids(pool.running) == ids([*early, late[0]])


def test_a_queue_that_is_not_served_is_left_alone(make_consumer, pool, queue, make_queue):
    make_queue("other")
    enqueue("other", 1)

    settle_down(make_consumer())

    assert pool.running == []


def test_not_more_are_claimed_than_max_messages(make_consumer, pool, queue):
    pool.threads = 10
    enqueue(queue, 5)
    consumer = make_consumer(max_messages=3)

    settle_down(consumer)

    assert len(pool.running) == 3
    assert consumer.claimed == 3


def test_paused_queue_waits_until_resumed(make_consumer, pool, queue):
    enqueue(queue, 1)
    queue.pause()
    consumer = make_consumer()
    settle_down(consumer)
    assert pool.running == []

    with closing(sqlite3.connect(connection.settings_dict["NAME"])) as other, other:
        other.execute("UPDATE mqlite_queues SET paused = 0")
    settle_down(consumer)

    assert len(pool.running) == 1


def test_a_queue_that_is_deleted_between_look_and_claim_stops_nothing(
    make_consumer, pool, queue, monkeypatch
):
    enqueue(queue, 1)
    consumer = make_consumer(queues=("ghost", "jobs"))
    with monkeypatch.context() as patched:
        patched.setattr(MessageManager, "claimable", lambda manager: {"ghost", "jobs"})
        assert consumer.poll() == 0
    assert pool.running == []

    settle_down(consumer)

    assert len(pool.running) == 1


# Settling


def test_consumer_settles_as_the_handlers_ended(make_consumer, pool, queue):
    pool.threads = 4
    completed, rejected, retried, failed = enqueue(queue, 4)
    consumer = make_consumer()
    settle_down(consumer)
    endings = [None, Reject("Broken", "no hope"), Retry(delay=60), ValueError("no")]

    for message, error in zip(list(pool.running), endings, strict=True):
        pool.end(message, error)
    settle_down(consumer)

    assert state_of(completed) == "gone"
    assert row_of(rejected)["dead_letter_reason"] == "Broken"
    assert state_of(retried) == state_of(failed) == "scheduled"
    assert row_of(failed)["errors"][0]["class"] == "builtins.ValueError"
    assert pool.running == []


def test_what_has_finished_and_what_is_claimed_next_share_one_commit(make_consumer, pool, queue):
    enqueue(queue, 4)
    consumer = make_consumer()
    settle_down(consumer)
    for message in list(pool.running):
        pool.end(message)

    with CaptureQueriesContext(connection) as captured:
        consumer.poll()

    begun = [query["sql"] for query in captured if query["sql"].startswith("BEGIN")]
    assert begun == ["BEGIN IMMEDIATE"]
    assert len(pool.running) == 2
    assert Message.objects.count() == 2


def test_a_head_that_is_completed_lets_the_next_of_its_group_pass(make_consumer, pool, group_queue):
    first, second = enqueue(group_queue, 2, group_id="a")
    consumer = make_consumer(queues=("groups",))
    settle_down(consumer)
    assert ids(pool.running) == [first.pk]

    pool.end(pool.running[0])
    settle_down(consumer)

    assert ids(pool.running) == [second.pk]


def test_a_burst_goes_on_with_the_next_of_a_line(make_consumer, pool, group_queue):
    _first, second = enqueue(group_queue, 2, group_id="a")
    consumer = make_consumer(queues=("groups",), burst=True)
    settle_down(consumer)
    pool.end(pool.running[0])

    consumer.poll()
    assert not consumer._done
    settle_down(consumer)
    assert ids(pool.running) == [second.pk]

    pool.end(pool.running[0])
    settle_down(consumer)
    assert consumer._done


def test_what_the_handler_has_settled_is_left_alone(make_consumer, pool, queue, caplog):
    enqueue(queue, 1)
    consumer = make_consumer()
    settle_down(consumer)
    (message,) = pool.running
    message.complete()

    pool.end(message)
    settle_down(consumer)

    assert state_of(message) == "gone"
    assert caplog.records == []


def test_a_failure_after_the_handler_has_settled_is_told(make_consumer, pool, queue, caplog):
    enqueue(queue, 1)
    consumer = make_consumer()
    settle_down(consumer)
    (message,) = pool.running
    message.complete()

    pool.end(message, ValueError("too late"))
    settle_down(consumer)

    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert record.exc_info is not None
    assert record.id == message.pk


def test_the_outcome_of_a_lost_lease_is_not_written(make_consumer, pool, queue, clock, caplog):
    enqueue(queue, 1)
    consumer = make_consumer()
    settle_down(consumer)
    (message,) = pool.running
    clock.advance(queue.lock_duration)
    reap()
    before = row_of(message)

    pool.end(message, Reject("Broken"))
    pool.threads = 1
    consumer._shutdown.request()
    consumer.poll(claim=False)

    assert row_of(message) == before
    assert [record.id for record in caplog.records if "lost" in record.message] == [message.pk]


def test_a_settlement_that_cannot_be_written_is_kept_and_told_once(
    make_consumer, pool, queue, caplog
):
    enqueue(queue, 1)
    consumer = make_consumer()
    settle_down(consumer)
    (message,) = pool.running
    pool.end(message)

    with another_writer():
        assert consumer.poll() == FIRST_RETRY_DELAY
        assert consumer.poll() == 2 * FIRST_RETRY_DELAY
    assert state_of(message) == "locked"
    settle_down(consumer)

    assert state_of(message) == "gone"
    assert [record.levelno for record in caplog.records] == [logging.ERROR]


def test_what_still_runs_in_the_end_is_given_back_and_can_be_claimed(
    make_consumer, pool, stop, queue
):
    enqueue(queue, 1)
    consumer = make_consumer(shutdown_timeout=0)
    settle_down(consumer)
    stop.request()

    consumer.run()

    (message,) = Message.objects.claim("jobs")
    assert (message.delivery_count, message.interruptions) == (1, 1)
    assert message.errors[0]["class"] == "django_mqlite.exceptions.Interrupted"
    assert "stopped" in message.errors[0]["message"]


def test_handler_that_lost_its_lease_by_its_own_fault_is_counted(make_consumer, pool, stop, queue):
    enqueue(queue, 1)
    consumer = make_consumer(shutdown_timeout=0)
    settle_down(consumer)
    pool.running[0].lease_lost = True
    stop.request()

    consumer.run()

    (message,) = Message.objects.claim("jobs")
    assert (message.delivery_count, message.interruptions) == (2, 0)


def test_after_a_stall_leases_are_longer_and_that_is_told_once(
    make_consumer, pool, queue, clock, caplog
):
    renewer = SimpleNamespace(least_lease_ms=90_000, longest_stall=30.0)
    pool.threads = 1
    consumer = make_consumer(renewer=renewer)
    enqueue(queue, 2)

    settle_down(consumer)
    first = pool.running[0]
    pool.end(first)
    settle_down(consumer)

    (second,) = pool.running
    for message in (first, second):
        assert message.locked_until - message.locked_at == timedelta(seconds=90)
    (record,) = [r for r in caplog.records if "lock_duration" in r.getMessage()]
    assert "30.0 s" in record.getMessage()


def test_a_stall_shorter_than_the_lease_changes_nothing(make_consumer, pool, queue, clock, caplog):
    consumer = make_consumer(renewer=SimpleNamespace(least_lease_ms=3_000, longest_stall=1.0))
    enqueue(queue, 1)

    settle_down(consumer)

    (message,) = pool.running
    assert message.locked_until - message.locked_at == queue.lock_duration
    assert "lock_duration" not in caplog.text


def test_a_handler_that_has_ended_in_time_is_settled_even_without_grace(
    make_consumer, pool, stop, queue
):
    enqueue(queue, 2)
    consumer = make_consumer(shutdown_timeout=0)
    settle_down(consumer)
    ended, running = pool.running
    pool.end(ended)
    stop.request()

    consumer.run()

    assert state_of(ended) == "gone"
    assert state_of(running) == State.ACTIVE


# Resting


def test_idle_consumer_only_reads(make_consumer, queue):
    consumer = make_consumer(reaper=True)
    settle_down(consumer)

    with CaptureQueriesContext(connection) as captured:
        rest = settle_down(consumer)

    assert all(query["sql"].lstrip().startswith("SELECT") for query in captured)
    assert 0 < rest <= SLOW_POLL


def test_a_claim_that_finds_no_free_thread_is_no_reason_to_hurry(make_consumer, pool, queue):
    enqueue(queue, 3)

    assert settle_down(make_consumer()) > 0


def test_an_own_failure_that_comes_back_soon_is_not_slept_through(make_consumer, pool, queue):
    consumer = make_consumer(reaper=True)
    enqueue(queue, 1)
    settle_down(consumer)
    pool.end(pool.running[0], Retry(delay=0.001))

    settle_down(consumer)

    assert consumer.poll() <= REAP_AFTER_COMMIT


class Counted:
    """An entry that remembers what it was told to count."""

    def __init__(self):
        self.states = []

    def count(self, message):
        self.states.append((message.pk, message.state))

    def refresh(self, *, in_flight):
        pass


def test_each_delivery_is_counted_once_by_its_outcome(queue, make_consumer, pool):
    entry = Counted()
    consumer = make_consumer(entry=entry)
    done, failed = enqueue(queue, 2)
    consumer.poll()
    pool.end(pool.running[0])
    pool.end(pool.running[1], Reject("Broken"))
    consumer.poll()
    settled, lost = enqueue(queue, 2)
    consumer.poll()
    pool.running[0].complete()
    pool.end(pool.running[0])
    pool.running[1].claimed_token = "lost"
    pool.end(pool.running[1])
    consumer.poll()
    consumer.poll()

    assert entry.states == [
        (done.pk, "completed"),
        (failed.pk, "dead_lettered"),
        (settled.pk, "completed"),
    ]
    assert state_of(lost) == "locked"


class Reaps:
    """A reaper that notes when it is asked."""

    def __init__(self, said):
        self._said = said

    def poll(self):
        self._said.append("reaped")
        return 60


@pytest.mark.parametrize(
    ("late_by", "order"),
    [(0, ["started"]), (REAP_DELAY_LIMIT, ["reaped", "started"])],
    ids=["due", "late"],
)
def test_waiting_messages_go_before_due_ones_for_a_short_time(
    make_consumer, pool, queue, monkeypatch, late_by, order
):
    said = []
    consumer = make_consumer()
    monkeypatch.setattr(pool, "start", lambda message: said.append("started"))
    consumer._reaper = Reaps(said)
    consumer._version = consumer._messages.data_version()
    enqueue(queue, 1)
    monkeypatch.setattr(consumer_module, "time", SimpleNamespace(monotonic=lambda: 1_000.0))
    consumer._reap_at = 1_000.0 - late_by

    consumer.poll()

    assert said == order
