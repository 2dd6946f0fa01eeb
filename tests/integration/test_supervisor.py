"""`runworker --processes`: children work, die, are replaced, recycled and killed.

How they stop: test_worker_signals.py.
"""

import json
import os
import signal
import time

import pytest

from tests.support.waiting import wait_until
from tests.support.workers import wait_all_gone

TWO = ("--processes=2", "--threads=1")
LEASE = 60
"""Seconds; it does not expire during a test."""

pytestmark = pytest.mark.skipif(
    not hasattr(os, "killpg"), reason="NOT TESTED: groups of processes are POSIX"
)


def with_constants(**constants) -> dict[str, str]:
    """Return options for a worker with other constants: `module__NAME`."""
    by_path = {name.replace("__", "."): value for name, value in constants.items()}
    return {"launcher": "constants", "MQLITE_TEST_CONSTANTS": json.dumps(by_path)}


@pytest.fixture
def start(database):
    """Start two children with one thread each, and a queue whose leases do not expire."""

    def start(queue, *arguments, **options):
        database.queue(queue, lock_duration=LEASE)
        return database.start(*TWO, f"--queues={queue}", *arguments, **options)

    return start


def row_of(database, message):
    row = database.row(message)
    return row["state"], row["delivery_count"], row["interruptions"]


# Replaced and recycled


def test_killed_child_is_replaced_and_its_message_released_at_once(database, busy_processes):
    database.queue("jobs", lock_duration=LEASE)
    worker, held = busy_processes(2)
    victim, message = next(iter(held.items()))
    killed_at = time.time()

    os.kill(victim, signal.SIGKILL)
    wait_until((database.beside / "started-0.2").exists, "the second delivery", seconds=LEASE / 2)

    assert time.time() - killed_at < LEASE / 2
    row = database.row(message)
    assert row["delivery_count"] == 2
    assert f":{victim}:" not in row["locked_by"]
    assert "exited with code -9" in row["errors"][0]["message"]
    database.go_on()
    database.wait_gone(*held.values())
    wait_until(lambda: len(worker.children) == 2, "the replacement")
    worker.stop()
    assert "exited with code -9" in worker.output
    assert database.registered() == 0


def test_children_that_exit_at_start_are_given_up_after_growing_delays(database):
    constants = with_constants(supervisor__MAX_START_DELAY=0.01, supervisor__MAX_FAILED_STARTS=3)
    worker = database.start(*TWO, MQLITE_TEST_DIE_YOUNG="1", **constants)

    assert worker.exit_code() == 1

    assert 3 <= worker.output.count("exited with code 7") <= 4
    assert "Traceback" not in worker.output


def test_supervisor_with_an_unusable_database_exits_with_its_children(database):
    worker = database.start(*TWO, **with_constants(database_errors__GIVE_UP_AFTER=0.1))
    children = worker.wait_ready(2).children

    with database.other_program() as other:
        other.execute("ALTER TABLE mqlite_messages RENAME TO elsewhere")

    assert worker.exit_code() == 1
    wait_all_gone(children)
    assert "no such table" in worker.output
    assert "manage.py migrate" in worker.output
    assert "Traceback" not in worker.output


def test_child_is_recycled_after_max_messages(database, start):
    database.enqueue_many("jobs", 10)

    worker = start("jobs", "--max-messages=2")
    database.wait_empty()

    names = [name for _, _, name in database.effects()]
    assert len(names) == 10
    assert max(names.count(name) for name in names) <= 2
    assert len(set(names)) >= 5
    worker.stop()


def test_child_beyond_max_memory_is_recycled(database, start):
    worker = start("grow", "--max-memory=250")
    grown = database.enqueue("grow", {"started": database.file("started"), "megabytes": 300})
    database.wait_gone(grown)

    worker.wait_said("more than --max-memory")
    worker.wait_ready(3)

    assert "exited with code 0" in worker.output
    assert "ERROR" not in worker.output
    worker.stop()


def test_process_beyond_max_memory_before_its_first_message_fails(database):
    """Otherwise processes would be replaced without end."""
    worker = database.start("--max-memory=1")

    assert worker.exit_code() == 1
    assert "more than --max-memory" in worker.output


def test_message_that_kills_its_children_becomes_a_dead_letter(database):
    database.queue("jobs", lock_duration=LEASE, max_delivery_count=2, backoff_base=0)
    message = database.enqueue("jobs", {"kill": True})

    worker = database.start(*TWO)

    wait_until(database.dead_letters, "the dead letter")
    assert "exited with code -9" in worker.output
    (letter,) = database.dead_letters()
    assert (letter.pk, letter.dead_letter_reason) == (message.pk, "MaxDeliveryCountExceeded")
    assert [error["delivery"] for error in letter.errors] == [1, 2]
    assert database.deliveries() == [1, 2]


def test_burst_in_which_a_child_is_killed_fails(database):
    database.queue("jobs", lock_duration=LEASE)
    database.enqueue("jobs", {"kill": True})

    burst = database.start(*TWO, "--burst")

    assert burst.exit_code() == 1
    assert "exited with code -9" in burst.output


def test_burst_of_processes_ends_when_no_message_is_left(database):
    ids = database.enqueue_many("jobs", 20)

    assert database.start(*TWO, "--burst").ended_well()

    assert sorted(database.handled()) == ids


# Handlers that hold the interpreter or never end


def test_delivery_of_a_child_killed_at_shutdown_is_not_counted(database, start):
    """The child cannot give the message back, because its handler holds the interpreter."""
    worker = start("holds", "--shutdown-timeout=0.1", **with_constants(supervisor__KILL_AFTER=0.1))
    message = database.enqueue("holds", {"started": database.file("started"), "seconds": LEASE})
    database.wait_started()

    worker.terminate()

    worker.exit_code()
    assert row_of(database, message) == ("active", 0, 1)
    assert "did not exit in time" in worker.output


def test_supervisor_keeps_the_lease_of_a_child_that_holds_the_interpreter(database):
    database.queue("holds", lock_duration=1)
    message = database.enqueue("holds", {"started": database.file("started"), "seconds": 3})
    worker = database.start(*TWO, "--queues=holds")
    database.wait_started()
    started_at = time.monotonic()

    database.wait_gone(message)

    assert time.monotonic() - started_at > 2
    assert database.deliveries() == [1]
    worker.stop()


@pytest.mark.rule("14.3")
@pytest.mark.rule("14.5")
@pytest.mark.parametrize("queue", ["limited", "blocks"])
def test_child_beyond_its_timeout_is_killed_and_its_message_retried(database, start, queue):
    steps = {"started": database.file("started"), "told": database.file("told"), "seconds": LEASE}
    worker = start(queue, **with_constants(leases__CANCEL_GRACE_MS=100))
    message = database.enqueue(queue, steps)

    database.wait_gone(message, seconds=LEASE / 2)

    database.wait_started(2)
    assert "exceeded its timeout" in worker.output
    worker.stop()


@pytest.mark.rule("14.4")
@pytest.mark.rule("14.5")
@pytest.mark.parametrize("queue", ["limited", "blocks"])
def test_stuck_handler_ends_a_worker_of_one_process(database, queue):
    database.queue(queue, lock_duration=LEASE)
    steps = {"started": database.file("started"), "told": database.file("told"), "seconds": LEASE}
    message = database.enqueue(queue, steps)

    worker = database.start(
        *(f"--queues={queue}", "--shutdown-timeout=0.5"),
        **with_constants(leases__CANCEL_GRACE_MS=100),
    )

    assert worker.exit_code() == 1
    assert database.beside.joinpath("told").exists() or queue == "blocks"
    assert "is stuck" in worker.output
    assert "Traceback" not in worker.output
    (again,) = database.claim(queue)
    assert (again.pk, again.delivery_count, again.interruptions) == (message.pk, 2, 0)


@pytest.mark.rule("14.3")
def test_neighbour_of_an_overdue_handler_is_interrupted_uncounted(database):
    """Three messages that wait leave one slot of four, in the process of one of them."""
    for name in ("limited", "jobs"):
        database.queue(name, lock_duration=LEASE)
    neighbours = [database.enqueue("jobs", {"wait_for": database.file("go-on")}) for _ in range(3)]
    steps = {"started": database.file("started"), "told": database.file("told")}
    limited = database.enqueue("limited", steps)
    worker = database.start("--processes=2", "--threads=2", "--queues=jobs,limited")

    database.wait_gone(limited, seconds=LEASE / 2)

    rows = [database.row(message) for message in neighbours]
    assert sum(row["interruptions"] for row in rows) == 1
    assert all(row["delivery_count"] <= 1 for row in rows)
    database.go_on()
    database.wait_empty()
    worker.stop()


def test_handler_that_always_holds_the_interpreter_gets_a_longer_lease(database):
    database.queue("stalls", lock_duration=0.5)
    message = database.enqueue("stalls", {"milliseconds": 1_500})

    worker = database.start("--queues=stalls", "--threads=1", "--burst")

    assert worker.exit_code() == 0
    assert database.state(message) == "gone"
    assert worker.output.count("--processes") == 1


def test_thread_that_holds_the_interpreter_costs_a_fenced_redelivery(database):
    database.queue("holds", lock_duration=0.5)
    message = database.enqueue("holds", {"started": database.file("started"), "seconds": 3})
    worker = database.start("--queues=holds", "--threads=2")

    database.wait_empty()

    wait_until(lambda: 1 in database.deliveries(), "the first delivery to end")
    assert sorted(database.deliveries()) in ([1], [1, 2])
    assert database.state(message) == "gone"
    worker.stop()
