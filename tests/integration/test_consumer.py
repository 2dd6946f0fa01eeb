"""The consumer of a worker process claims, settles and waits, step by step."""

import logging
import sqlite3
from contextlib import closing, contextmanager
from datetime import timedelta
from types import SimpleNamespace

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from django_mqlite import Reject, Retry
from django_mqlite.limits import UNLIMITED
from django_mqlite.managers import MessageManager
from django_mqlite.models import Message
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


class FakePool:
    """A pool whose handlers end when the test says so."""

    def __init__(self, threads):
        self.threads = threads
        self.running = []
        self._finished = []

    @property
    def free(self):
        return self.threads - len(self.running)

    @property
    def running_ids(self):
        return [message.pk for message in self.running]

    @property
    def awaited(self):
        return self.running

    def start(self, message):
        self.running.append(message)

    def end(self, message, error=None):
        self._finished.append(DeliveryResult(message=message, error=error))

    def take_finished(self):
        finished, self._finished = self._finished, []
        for result in finished:
            self.running.remove(result.message)
        return finished


@pytest.fixture
def pool():
    return FakePool(threads=2)


@pytest.fixture
def shutdown():
    return Shutdown()


@pytest.fixture
def make_consumer(pool, shutdown):
    """Make a consumer of the queue `jobs`, or of what the options say."""
    with closing(Wakeup("default")) as wakeup:

        def make(*, reaper=False, entry=None, renewer=None, **options):
            return Consumer(
                WorkerOptions(**{"using": "default", "queues": ("jobs",), **options}),
                pool=pool,
                wakeup=wakeup,
                shutdown=shutdown,
                reaper=Reaper("default") if reaper else None,
                entry=entry,
                renewer=renewer,
            )

        yield make


@pytest.fixture
def start_one(make_consumer, pool, queue):
    """Make a consumer that has claimed a message; return both."""

    def start_one(**options):
        enqueue(queue, 1)
        consumer = make_consumer(**options)
        poll_until_idle(consumer)
        (message,) = pool.running
        return consumer, message

    return start_one


def enqueue(queue, count, **options):
    return [Message.objects.enqueue(str(queue), None, **options) for _ in range(count)]


def poll_until_idle(consumer) -> float:
    """Poll until the consumer waits; return for how many seconds."""
    while (seconds := consumer.poll()) == 0:
        pass
    return seconds


def ids(messages):
    return [message.pk for message in messages]


def other_program():
    return closing(sqlite3.connect(connection.settings_dict["NAME"], isolation_level=None))


@contextmanager
def short_timeout():
    """Do not wait for the write lock, on either engine."""
    with connection.cursor() as cursor:
        cursor.execute("PRAGMA busy_timeout = 0")
    if hasattr(connection.connection, "timeout"):
        connection.connection.timeout = 0
    yield
    connection.close()


# Claiming


def test_consumer_claims_for_free_threads_only_under_its_name(make_consumer, pool, queue):
    messages = enqueue(queue, 5)

    assert poll_until_idle(make_consumer(name="host:1:abcd")) > 0

    assert pool.running_ids == ids(messages[:2])
    assert [row_of(message)["locked_by"] for message in messages[:2]] == ["host:1:abcd"] * 2
    assert [state_of(message) for message in messages[2:]] == ["active"] * 3


@pytest.mark.parametrize(
    ("round_robin", "queues"),
    [(False, ["first", "first", "jobs", "jobs"]), (True, ["jobs", "first", "jobs", "first"])],
)
def test_served_queues_are_claimed_in_order_or_in_turn(
    make_consumer, pool, queue, make_queue, round_robin, queues
):
    pool.threads = 1
    for name in ("first", "other"):
        make_queue(name)
    for name in ("jobs", "first", "other"):
        enqueue(name, 2)
    consumer = make_consumer(queues=("first", "jobs"), round_robin=round_robin)
    handled = []

    for _ in range(4):
        poll_until_idle(consumer)
        handled.append(pool.running[0].queue)
        pool.end(pool.running[0])
        consumer.poll(claim=False)

    assert sorted(handled[:2]) == sorted(queues[:2])
    assert sorted(handled) == sorted(queues)
    assert round_robin or handled == queues


def test_consumer_claims_at_most_max_messages(make_consumer, pool, queue):
    pool.threads = 10
    enqueue(queue, 5)
    consumer = make_consumer(max_messages=3)

    poll_until_idle(consumer)

    assert len(pool.running) == consumer.claimed == 3


def test_paused_queue_is_claimed_when_resumed(make_consumer, pool, queue):
    enqueue(queue, 1)
    queue.pause()
    consumer = make_consumer()
    poll_until_idle(consumer)
    assert pool.running == []

    with other_program() as other:
        other.execute("UPDATE mqlite_queues SET paused = 0")
    poll_until_idle(consumer)

    assert len(pool.running) == 1


def test_queue_deleted_before_the_claim_does_not_stop_the_others(
    make_consumer, pool, queue, monkeypatch
):
    enqueue(queue, 1)
    consumer = make_consumer(queues=("ghost", "jobs"))
    with monkeypatch.context() as patched:
        claimable = dict.fromkeys(("ghost", "jobs"), UNLIMITED)
        patched.setattr(MessageManager, "claimable_limits", lambda manager: claimable)
        assert consumer.poll() == 0
    assert pool.running == []

    poll_until_idle(consumer)

    assert len(pool.running) == 1


# Settling


def test_messages_are_settled_by_the_results_of_their_handlers(make_consumer, pool, queue):
    pool.threads = 4
    completed, rejected, retried, failed = enqueue(queue, 4)
    consumer = make_consumer()
    poll_until_idle(consumer)
    errors = [None, Reject("Broken", "no hope"), Retry(delay=60), ValueError("no")]

    for message, error in zip(list(pool.running), errors, strict=True):
        pool.end(message, error)
    poll_until_idle(consumer)

    assert state_of(completed) == "gone"
    assert row_of(rejected)["dead_letter_reason"] == "Broken"
    assert state_of(retried) == state_of(failed) == "scheduled"
    assert row_of(failed)["errors"][0]["class"] == "builtins.ValueError"
    assert pool.running == []


def test_settles_and_the_next_claims_share_one_commit(make_consumer, pool, queue):
    enqueue(queue, 4)
    consumer = make_consumer()
    poll_until_idle(consumer)
    for message in list(pool.running):
        pool.end(message)

    with CaptureQueriesContext(connection) as captured:
        consumer.poll()

    begun = [query["sql"] for query in captured if query["sql"].startswith("BEGIN")]
    assert begun == ["BEGIN IMMEDIATE"]
    assert len(pool.running) == 2
    assert Message.objects.count() == 2


def test_completed_head_lets_a_burst_claim_the_next_of_its_group(make_consumer, pool, group_queue):
    first, second = enqueue(group_queue, 2, group_id="a")
    consumer = make_consumer(queues=("groups",), burst=True)
    poll_until_idle(consumer)
    assert pool.running_ids == [first.pk]
    pool.end(pool.running[0])

    consumer.poll()
    assert not consumer._done
    poll_until_idle(consumer)
    assert pool.running_ids == [second.pk]

    pool.end(pool.running[0])
    poll_until_idle(consumer)
    assert consumer._done


@pytest.mark.parametrize("error", [None, ValueError("too late")])
def test_settle_by_the_handler_stays_and_a_later_error_is_logged(start_one, pool, caplog, error):
    consumer, message = start_one()
    message.complete()

    pool.end(message, error)
    poll_until_idle(consumer)

    assert state_of(message) == "gone"
    records = [(record.levelno, record.id, record.exc_info[1]) for record in caplog.records]
    assert records == ([(logging.ERROR, message.pk, error)] if error else [])


def test_result_of_a_lost_lease_is_ignored(start_one, pool, shutdown, queue, clock, caplog):
    consumer, message = start_one()
    clock.advance(queue.lock_duration)
    reap()
    before = row_of(message)

    pool.end(message, Reject("Broken"))
    pool.threads = 1
    shutdown.request()
    consumer.poll(claim=False)

    assert row_of(message) == before
    assert [record.id for record in caplog.records if "lost" in record.message] == [message.pk]


def test_settle_that_cannot_be_written_is_retried_and_logged_once(start_one, pool, caplog):
    consumer, message = start_one()
    pool.end(message)

    with short_timeout(), other_program() as other:
        other.execute("BEGIN IMMEDIATE")
        assert consumer.poll() == FIRST_RETRY_DELAY
        assert consumer.poll() == 2 * FIRST_RETRY_DELAY
    assert state_of(message) == "locked"
    poll_until_idle(consumer)

    assert state_of(message) == "gone"
    assert [record.levelno for record in caplog.records] == [logging.ERROR]


@pytest.mark.parametrize(
    ("lease_lost", "counts", "error"),
    [
        (False, (1, 1), ("django_mqlite.exceptions.Interrupted", "stopped")),
        (True, (2, 0), ("", "lost its lease")),
    ],
)
def test_running_message_is_given_back_at_the_end(start_one, shutdown, lease_lost, counts, error):
    """A handler that lost its lease by its own fault uses up a delivery."""
    consumer, message = start_one(shutdown_timeout=0)
    message.lease_lost = lease_lost
    shutdown.request()

    consumer.run()

    (message,) = Message.objects.claim("jobs")
    assert (message.delivery_count, message.interruptions) == counts
    assert message.errors[0]["class"] == error[0]
    assert error[1] in message.errors[0]["message"]


def test_finished_message_is_settled_at_the_end(make_consumer, pool, shutdown, queue):
    enqueue(queue, 2)
    consumer = make_consumer(shutdown_timeout=0)
    poll_until_idle(consumer)
    finished, running = pool.running
    pool.end(finished)
    shutdown.request()

    consumer.run()

    assert [state_of(finished), state_of(running)] == ["gone", "active"]


@pytest.mark.parametrize(
    ("least_ms", "stall", "lease"), [(90_000, 30.0, 90), (3_000, 1.0, 30)], ids=["long", "short"]
)
def test_leases_are_longer_after_a_long_stall_which_is_logged_once(
    start_one, pool, queue, caplog, least_ms, stall, lease
):
    pool.threads = 1
    renewer = SimpleNamespace(minimum_lease_ms=least_ms, longest_stall=stall)
    consumer, first = start_one(renewer=renewer)
    enqueue(queue, 1)
    pool.end(first)
    poll_until_idle(consumer)

    (second,) = pool.running
    for message in (first, second):
        assert message.locked_until - message.locked_at == timedelta(seconds=lease)
    warnings = [text for text in caplog.messages if "lock_duration" in text]
    assert len(warnings) == (lease == 90)
    assert all("30.0 s" in text for text in warnings)


# Waiting


def test_idle_consumer_only_reads(make_consumer, queue):
    consumer = make_consumer(reaper=True)
    poll_until_idle(consumer)

    with CaptureQueriesContext(connection) as captured:
        seconds = poll_until_idle(consumer)

    assert all(query["sql"].lstrip().startswith("SELECT") for query in captured)
    assert 0 < seconds <= SLOW_POLL


def test_retry_that_is_due_soon_shortens_the_wait(start_one, pool):
    consumer, message = start_one(reaper=True)
    pool.end(message, Retry(delay=0.001))

    poll_until_idle(consumer)

    assert consumer.poll() <= REAP_AFTER_COMMIT


class FakeEntry:
    """An entry of the registry that remembers what it counts."""

    def __init__(self):
        self.states = []

    def count(self, message):
        self.states.append((message.pk, message.state))

    def refresh(self, *, in_flight):
        pass


def test_delivery_is_counted_once_by_its_outcome(queue, make_consumer, pool):
    entry = FakeEntry()
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


@pytest.mark.parametrize(
    ("late_by", "order"),
    [(0, ["started"]), (REAP_DELAY_LIMIT, ["reaped", "started"])],
    ids=["due", "late"],
)
def test_claims_delay_a_sweep_that_is_due_for_a_short_time(
    make_consumer, pool, queue, monkeypatch, late_by, order
):
    events = []
    consumer = make_consumer()
    monkeypatch.setattr(pool, "start", lambda message: events.append("started"))
    consumer._reaper = SimpleNamespace(poll=lambda: events.append("reaped") or 60)
    consumer._version = consumer._messages.data_version()
    enqueue(queue, 1)
    monkeypatch.setattr(consumer_module, "time", SimpleNamespace(monotonic=lambda: 1_000.0))
    consumer._reap_at = 1_000.0 - late_by

    consumer.poll()

    assert events == order


# Limits


@pytest.fixture
def reads(monkeypatch):
    """The reads of claimable queues."""
    reads, read = [], MessageManager.claimable_limits

    def counted(manager):
        reads.append(manager)
        return read(manager)

    monkeypatch.setattr(MessageManager, "claimable_limits", counted)
    return reads


@pytest.mark.rule("17.8")
def test_limited_worker_sleeps_until_the_next_token(clock, make_queue, make_consumer, pool, reads):
    queue = make_queue("jobs", rate="100/s")
    enqueue(queue, 101)
    Message.objects.claim("jobs", limit=100)
    consumer = make_consumer()

    assert 0 < poll_until_idle(consumer) <= 0.01
    assert pool.running == []

    clock.advance(0.01)
    reads.clear()
    while not pool.running:
        consumer.poll()
    assert len(reads) <= 2


@pytest.mark.rule("17.8")
@pytest.mark.parametrize("limit", [{"rate": "1/h"}, {"max_in_flight": 1}], ids=str)
def test_limited_worker_reads_nothing_while_it_waits(
    clock, make_queue, make_consumer, pool, reads, limit
):
    queue = make_queue("jobs", **limit)
    enqueue(queue, 2)
    Message.objects.claim("jobs")
    consumer = make_consumer()
    assert poll_until_idle(consumer) == SLOW_POLL
    reads.clear()

    for _ in range(5):
        assert consumer.poll() == SLOW_POLL

    assert (reads, pool.running) == ([], [])


@pytest.mark.rule("17.8")
def test_limited_worker_claims_after_its_own_settle(clock, make_queue, make_consumer, pool):
    queue = make_queue("jobs", max_in_flight=1)
    first, second = enqueue(queue, 2)
    consumer = make_consumer()
    poll_until_idle(consumer)
    assert pool.running_ids == [first.pk]

    pool.end(pool.running[0])
    poll_until_idle(consumer)

    assert pool.running_ids == [second.pk]


@pytest.mark.rule("17.8")
def test_limited_worker_claims_after_the_settle_of_another(clock, make_queue, make_consumer, pool):
    queue = make_queue("jobs", max_in_flight=1)
    _, second = enqueue(queue, 2)
    (held,) = Message.objects.claim("jobs")
    consumer = make_consumer()
    poll_until_idle(consumer)

    with other_program() as other:  # commits, as another worker does
        other.execute("DELETE FROM mqlite_messages WHERE id = ?", [held.pk])
    poll_until_idle(consumer)

    assert pool.running_ids == [second.pk]


@pytest.mark.rule("17.8")
def test_limited_worker_claims_when_a_lease_expires(clock, make_queue, make_consumer, pool):
    queue = make_queue("jobs", max_in_flight=1)
    _, second = enqueue(queue, 2)
    Message.objects.claim("jobs", lock_duration=0.02)
    consumer = make_consumer()  # without a reaper
    assert 0 < poll_until_idle(consumer) <= 0.02

    clock.advance(0.02)
    while not pool.running:
        consumer.poll()

    assert pool.running_ids == [second.pk]


@pytest.mark.rule("17.8")
@pytest.mark.parametrize("limit", [{"rate": "1/h"}, {"max_in_flight": 1}], ids=str)
@pytest.mark.parametrize("round_robin", [False, True])
def test_limited_queue_does_not_keep_others_waiting(
    clock, make_queue, make_consumer, pool, limit, round_robin
):
    enqueue(make_queue("jobs", **limit), 5)
    free = enqueue(make_queue("free"), 5)
    pool.threads = 4
    consumer = make_consumer(queues=("jobs", "free"), round_robin=round_robin)

    poll_until_idle(consumer)

    assert [message.queue for message in pool.running].count("free") >= 3
    assert pool.free == 0
    for message in [message for message in pool.running if message.queue == "free"]:
        pool.end(message)
    poll_until_idle(consumer)
    assert sorted(message.queue for message in pool.running).count("jobs") == 1
    assert state_of(free[-1]) == "locked"


@pytest.mark.rule("17.8")
@pytest.mark.parametrize("limit", [{"rate": "1/h"}, {"max_in_flight": 1}], ids=str)
def test_burst_waits_for_messages_behind_a_limit(clock, make_queue, make_consumer, pool, limit):
    queue = make_queue("jobs", **limit)
    enqueue(queue, 2)
    Message.objects.claim("jobs")
    consumer = make_consumer(burst=True)
    poll_until_idle(consumer)
    assert not consumer._done

    with other_program() as other:
        other.execute("DELETE FROM mqlite_messages")
    poll_until_idle(consumer)

    assert consumer._done
