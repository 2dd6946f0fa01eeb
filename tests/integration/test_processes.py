"""`runworker --processes`: children that work, die, are replaced, recycled and stopped."""

import json
import os
import signal
import time

import psutil
import pytest

from tests.support.unruly_app import UNRULY
from tests.support.waiting import wait_until

TWO = ("--processes=2", "--threads=1")
LONG = 60
"""Seconds of a lease that does not run out in a test."""

OWN_GROUP = ("-m", "tests.support.own_group")

pytestmark = pytest.mark.skipif(
    not hasattr(os, "killpg"), reason="NOT TESTED: groups of processes are POSIX"
)


class Processes:
    """A supervisor in a group of its own, its children, and how to wait for them."""

    def __init__(self, database, *arguments, **options):
        self.database = database
        self.worker = database.start(*TWO, *arguments, **options)
        self.supervisor = psutil.Process(self.worker.pid)

    @property
    def children(self) -> list[psutil.Process]:
        """The processes that work; not the one in which multiprocessing tracks resources."""
        found = self.supervisor.children()
        return [child for child in found if "spawn_main" in " ".join(child.cmdline())]

    def wait_ready(self, count=2):
        wait_until(lambda: self.worker.output.count(" serves ") >= count, "the children to serve")
        return self


def wait_all_gone(processes) -> None:
    wait_until(lambda: not any(process.is_running() for process in processes), "them to be gone")


@pytest.fixture
def start(database):
    """A supervisor; in the end whatever is left of its children is killed."""
    started = []

    def start(*arguments, **options):
        processes = Processes(database, *arguments, **options)
        started.append(processes)
        return processes

    yield start
    for processes in started:
        if processes.worker.popen.poll() is None:
            children = processes.supervisor.children()
            processes.worker.kill()
            for child in children:
                child.kill()


@pytest.fixture
def busy(database, start):
    """Both children in a handler that waits for the file `go-on`."""

    def busy(*arguments, lease=LONG, **options):
        database.queue("jobs", lock_duration=lease)
        messages = []
        for number in range(2):
            started = database.file(f"started-{number}")
            steps = {"started": started, "wait_for": database.file("go-on")}
            messages.append(database.enqueue("jobs", steps))
        processes = start(*arguments, **options)
        files = [database.beside / f"started-{number}.1" for number in range(2)]
        wait_until(lambda: all(file.exists() for file in files), "both handlers to start")
        wait_until(lambda: all(file.read_text() for file in files), "both to say who they are")
        pids = [int(file.read_text()) for file in files]
        assert len(set(pids)) == 2
        return processes, dict(zip(pids, messages, strict=True))

    return busy


@pytest.fixture
def go_on(database):
    return database.beside.joinpath("go-on").touch


def states(database, held) -> set[str]:
    return {database.state(message) for message in held.values()}


# Work and replacement


def test_killed_child_is_replaced_and_its_message_released_at_once(database, busy, go_on):
    processes, held = busy()
    victim, message = next(iter(held.items()))
    killed_at = time.time()

    os.kill(victim, signal.SIGKILL)
    again = database.beside / f"started-{list(held).index(victim)}.2"
    wait_until(again.exists, "the second delivery", seconds=LONG / 2)

    assert time.time() - killed_at < LONG / 2
    row = database.row(message)
    assert row["delivery_count"] == 2
    assert f":{victim}:" not in row["locked_by"]
    assert "exited with code -9" in row["errors"][0]["message"]
    go_on()
    wait_until(lambda: states(database, held) == {"gone"}, "both to be completed")
    wait_until(lambda: len(processes.children) == 2, "the replacement")
    processes.worker.terminate()
    assert processes.worker.ended_well()
    assert "exited with code -9" in processes.worker.output
    assert database.scalar("SELECT count(*) FROM mqlite_meta WHERE key LIKE 'worker:%'") == 0


def hasty(**constants) -> dict:
    """Options for a supervisor with other constants: `module__NAME`."""
    named = {name.replace("__", "."): value for name, value in constants.items()}
    return {
        "launcher": ("-m", "tests.support.hasty"),
        "MQLITE_TEST_CONSTANTS": json.dumps(named),
        **UNRULY,
    }


def test_children_that_die_at_once_are_given_up_after_growing_rests(database):
    hurry = hasty(supervisor__LONGEST_START_DELAY=0.01, supervisor__MAX_FAILED_STARTS=3)
    worker = database.start(*TWO, "--queues=jobs", MQLITE_TEST_DIE_YOUNG="1", **hurry)

    assert worker.exit_code() == 1

    assert 3 <= worker.output.count("exited with code 7") <= 4
    assert "Traceback" not in worker.output


def test_supervisor_with_an_unusable_database_ends_with_its_children(database, start):
    processes = start("--queues=jobs", **hasty(database_errors__GIVE_UP_AFTER=0.1)).wait_ready()
    children = processes.children

    with database.other_program() as other:
        other.execute("ALTER TABLE mqlite_messages RENAME TO elsewhere")

    assert processes.worker.exit_code() == 1
    wait_all_gone(children)
    assert "no such table" in processes.worker.output
    assert "manage.py migrate" in processes.worker.output
    assert "Traceback" not in processes.worker.output


def test_a_child_is_recycled_after_so_many_messages(database, start):
    database.enqueue_many("jobs", 10)

    processes = start("--max-messages=2")
    wait_until(lambda: database.left() == 0, "every message to be handled")

    by = [worker for _, _, worker in database.effects()]
    assert len(by) == 10
    assert max(by.count(worker) for worker in by) <= 2
    assert len(set(by)) >= 5
    processes.worker.terminate()
    assert processes.worker.ended_well()


def test_a_job_that_kills_its_child_ends_in_the_dead_letters(database, start):
    database.queue("jobs", lock_duration=LONG, max_delivery_count=2, backoff_base=0)
    message = database.enqueue("jobs", {"kill": True})

    processes = start()
    wait_until(database.dead_letters, "the dead letter")

    (dead,) = database.dead_letters()
    assert (dead.pk, dead.dead_letter_reason) == (message.pk, "MaxDeliveryCountExceeded")
    assert [error["delivery"] for error in dead.errors] == [1, 2]
    assert [delivery for _, delivery, _ in database.effects()] == [1, 2]
    after = database.enqueue("jobs")
    wait_until(lambda: database.state(after) == "gone", "the worker to go on")
    processes.worker.terminate()
    assert processes.worker.ended_well()


# Stopping


def test_supervisor_terminated_with_its_process_group_drains(database, busy, go_on):
    """As systemd does it with KillMode=control-group: each child gets the signal as well."""
    processes, held = busy(launcher=OWN_GROUP)
    children = processes.children

    os.killpg(processes.worker.pid, signal.SIGTERM)
    wait_until(lambda: processes.worker.output.count("no more claims") == 2, "both to drain")
    assert states(database, held) == {"locked"}
    go_on()

    assert processes.worker.ended_well()
    assert states(database, held) == {"gone"}
    assert len(database.effects()) == 2
    wait_all_gone(children)


def test_supervisor_interrupted_at_the_keyboard_drains(database, busy, go_on):
    processes, held = busy(launcher=OWN_GROUP)

    os.killpg(processes.worker.pid, signal.SIGINT)
    wait_until(lambda: processes.worker.output.count("no more claims") == 2, "both to drain")
    go_on()

    assert processes.worker.ended_well()
    assert states(database, held) == {"gone"}


def test_a_second_signal_leaves_at_once_and_takes_the_children_along(database, busy):
    processes, held = busy()
    children = processes.children
    processes.worker.terminate()
    wait_until(lambda: processes.worker.output.count("no more claims") == 2, "both to drain")

    processes.worker.terminate()

    assert processes.worker.exit_code() == 128 + signal.SIGTERM
    wait_all_gone(children)
    assert states(database, held) == {"locked"}


def test_children_of_a_killed_supervisor_drain_and_end(database, busy, go_on):
    processes, held = busy()
    children = processes.children
    waiting = database.enqueue("jobs")

    processes.worker.kill()
    wait_until(lambda: processes.worker.output.count("no more claims") == 2, "both to drain")
    go_on()

    wait_all_gone(children)
    assert states(database, held) == {"gone"}
    assert len(database.effects()) == 2
    assert database.row(waiting)["delivery_count"] == 0


def test_a_burst_ends_when_nothing_is_left_to_claim(database, start):
    ids = database.enqueue_many("jobs", 20)

    assert start("--burst").worker.ended_well()

    assert sorted(database.handled()) == ids


def test_a_burst_in_which_a_process_died_does_not_end_as_if_all_were_well(database, start):
    database.queue("jobs", max_delivery_count=1)
    database.enqueue("jobs", {"kill": True})

    burst = start("--burst").worker

    assert burst.exit_code() == 1
    assert "exited with code -9" in burst.output
    assert [letter.dead_letter_reason for letter in database.dead_letters()] == [
        "MaxDeliveryCountExceeded"
    ]


def test_deliveries_that_a_stop_interrupts_are_not_counted(database, busy):
    processes, held = busy("--shutdown-timeout=0.1")

    processes.worker.terminate()

    assert processes.worker.ended_well()
    for message in held.values():
        row = database.row(message)
        assert (row["state"], row["delivery_count"], row["interruptions"]) == ("active", 0, 1)


def test_a_delivery_whose_process_has_to_be_killed_to_stop_is_not_counted(database, start):
    """It holds the interpreter: its process cannot give it back."""
    database.queue("holds", lock_duration=LONG, max_delivery_count=1)
    message = database.enqueue("holds", {"started": database.file("started"), "seconds": LONG})
    hurry = hasty(supervisor__KILL_AFTER=0.1)
    processes = start("--queues=holds", "--shutdown-timeout=0.1", **hurry)
    wait_until(database.beside.joinpath("started.1").exists, "the handler to start")

    processes.worker.terminate()

    processes.worker.exit_code()
    row = database.row(message)
    assert (row["state"], row["delivery_count"], row["interruptions"]) == ("active", 0, 1)
    assert "did not exit in time" in processes.worker.output


def test_supervisor_does_not_count_an_atomic_handler_cut_by_shutdown(database, start):
    database.queue("atomic", lock_duration=LONG, max_delivery_count=1)
    steps = {"started": database.file("started"), "wait_for": database.file("never")}
    message = database.enqueue("atomic", steps)
    processes = start("--shutdown-timeout=0.1", MQLITE_TEST_TIMEOUT="0.1")
    wait_until(database.beside.joinpath("started.1").exists, "the handler to start")

    processes.worker.terminate()

    processes.worker.exit_code()
    row = database.row(message)
    assert (row["state"], row["delivery_count"], row["interruptions"]) == ("active", 0, 1)
    assert database.effects() == []


# Handlers that hold the interpreter or never end


def test_processes_run_a_handler_that_holds_the_interpreter_once(database, start):
    lease = 1.0
    database.queue("holds", lock_duration=lease)
    message = database.enqueue("holds", {"started": database.file("started"), "seconds": 3})
    processes = start("--queues=holds", **UNRULY)
    began = database.beside / "started.1"
    wait_until(began.exists, "the handler to start")
    started_at = time.monotonic()

    wait_until(lambda: database.state(message) == "gone", "the completion")

    assert time.monotonic() - started_at > 2 * lease
    assert [delivery for _, delivery, _ in database.effects()] == [1]
    processes.worker.terminate()
    assert processes.worker.ended_well()


def test_a_child_beyond_its_timeout_is_killed_and_its_message_comes_again(database, start):
    database.queue("limited", lock_duration=LONG)
    steps = {"started": database.file("started"), "told": database.file("told")}
    message = database.enqueue("limited", steps)

    processes = start("--queues=limited", **UNRULY)
    wait_until(lambda: database.state(message) == "gone", "the second delivery", seconds=LONG / 2)

    assert database.beside.joinpath("started.2").exists()
    assert "exceeded its timeout" in processes.worker.output
    processes.worker.terminate()
    assert processes.worker.ended_well()


def test_child_with_a_blocked_loop_is_killed_after_the_timeout(database, start):
    database.queue("blocks", lock_duration=LONG)
    message = database.enqueue("blocks", {"started": database.file("started"), "seconds": LONG})
    hurry = hasty(leases__CANCEL_GRACE_MS=100)

    processes = start("--queues=blocks", **hurry)
    wait_until(lambda: database.state(message) == "gone", "the second delivery", seconds=LONG / 2)

    assert database.beside.joinpath("started.2").exists()
    assert "exceeded its timeout" in processes.worker.output
    processes.worker.terminate()
    assert processes.worker.ended_well()


def test_a_coroutine_that_blocks_its_loop_ends_a_worker_of_one_process(database):
    database.queue("blocks", lock_duration=LONG)
    message = database.enqueue("blocks", {"started": database.file("started"), "seconds": LONG})
    hurry = hasty(leases__CANCEL_GRACE_MS=100)

    worker = database.start("--queues=blocks", "--shutdown-timeout=0.5", **hurry)

    assert worker.exit_code() == 1
    assert "is stuck" in worker.output
    (again,) = database.claim("blocks")
    assert (again.pk, again.delivery_count, again.interruptions) == (message.pk, 2, 0)


def test_neighbour_of_an_overdue_handler_is_interrupted_uncounted(database, start):
    """Three that wait leave one slot of four, beside one of them."""
    for name in ("limited", "jobs"):
        database.queue(name, lock_duration=LONG)
    neighbours = [database.enqueue("jobs", {"wait_for": database.file("go-on")}) for _ in range(3)]
    steps = {"started": database.file("started"), "told": database.file("told")}
    limited = database.enqueue("limited", steps)
    processes = start("--threads=2", "--queues=jobs,limited", **UNRULY)

    wait_until(lambda: database.state(limited) == "gone", "the second delivery", seconds=LONG / 2)

    rows = [database.row(message) for message in neighbours]
    assert sum(row["interruptions"] for row in rows) == 1
    assert all(row["delivery_count"] <= 1 for row in rows)
    database.beside.joinpath("go-on").touch()
    wait_until(lambda: database.left() == 0, "the neighbours")
    processes.worker.terminate()
    assert processes.worker.ended_well()


def test_handler_that_always_holds_the_interpreter_gets_a_longer_lease(database):
    database.queue("stalls", lock_duration=0.5)
    message = database.enqueue("stalls", {"milliseconds": 1_500})

    worker = database.start("--queues=stalls", "--threads=1", "--burst", **UNRULY)

    assert worker.exit_code() == 0
    assert database.state(message) == "gone"
    assert worker.output.count("--processes") == 1


def test_process_of_an_overdue_thread_is_replaced(database):
    database.queue("limited", lock_duration=LONG)
    steps = {"started": database.file("started"), "told": database.file("told")}
    message = database.enqueue("limited", steps)

    worker = database.start("--queues=limited", "--shutdown-timeout=0.5", **UNRULY)

    assert worker.exit_code() == 1
    assert database.beside.joinpath("told").exists()
    assert "is stuck" in worker.output
    assert "Traceback" not in worker.output
    (again,) = database.claim("limited")
    assert (again.pk, again.delivery_count) == (message.pk, 2)


def test_thread_that_holds_the_interpreter_costs_a_fenced_redelivery(database):
    database.queue("holds", lock_duration=0.5)
    message = database.enqueue("holds", {"started": database.file("started"), "seconds": 3})
    worker = database.start("--queues=holds", "--threads=2", **UNRULY)

    wait_until(lambda: database.left() == 0, "the completion")

    effects = lambda: [delivery for _, delivery, _ in database.effects()]  # noqa: E731
    wait_until(lambda: 1 in effects(), "the first delivery to end")
    assert sorted(effects()) in ([1], [1, 2])
    assert database.state(message) == "gone"
    worker.terminate()
    assert worker.ended_well()


def test_process_too_large_before_its_first_message_is_a_failure(database):
    """Or it would be started again and again, as fast as processes start."""
    worker = database.start("--max-memory=1")

    assert worker.exit_code() == 1
    assert "more than --max-memory" in worker.output


def test_a_child_that_has_grown_too_large_is_recycled(database, start):
    database.queue("grow", lock_duration=LONG)
    first = database.enqueue("grow", {"started": database.file("first"), "megabytes": 300})
    processes = start("--queues=grow", "--max-memory=250", **UNRULY)
    wait_until(lambda: database.state(first) == "gone", "the first message")
    processes.worker.wait_said("more than --max-memory")
    processes.wait_ready(3)

    assert "exited with code 0" in processes.worker.output
    assert "ERROR" not in processes.worker.output
    processes.worker.terminate()
    assert processes.worker.ended_well()
