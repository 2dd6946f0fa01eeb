"""`manage.py runworker` as a process: what it serves, how it ends, what it rides out."""

import signal

import pytest

from django_mqlite import timing
from tests.support.waiting import wait_until

ONE_THREAD = "--threads=1"


@pytest.fixture
def busy(database):
    """A worker with one thread, in a handler that waits for the file `go-on`."""

    def start(*arguments, data=None, queue="jobs", **environment):
        steps = {"started": database.file("started"), "wait_for": database.file("go-on")}
        message = database.enqueue(queue, {**steps, **(data or {})})
        worker = database.start(ONE_THREAD, *arguments, **environment)
        wait_until(lambda: database.beside.joinpath("started.1").exists(), "the handler to start")
        return worker, message

    return start


@pytest.fixture
def go_on(database):
    """Lets waiting handlers end."""
    return database.beside.joinpath("go-on").touch


# What it serves


def test_queues_are_served_in_the_order_given_and_no_others(database):
    jobs = database.enqueue_many("jobs", 3)
    more = database.enqueue_many("more-jobs", 3)
    database.enqueue_many("atomic", 3)

    assert database.start("--queues=more-jobs,jobs", ONE_THREAD, "--burst").ended_well()

    assert database.handled() == [*more, *jobs]
    assert database.left() == 3


def test_by_default_every_queue_with_a_handler_is_served_but_the_excluded(database):
    handled = [database.enqueue(queue).pk for queue in ("jobs", "more-jobs", "atomic", "async")]
    left = database.enqueue("strict")

    assert database.start("--exclude=strict", "--burst").ended_well()

    assert sorted(database.handled()) == handled
    assert database.state(left) == "active"


@pytest.mark.parametrize(
    "options",
    [
        "queues='jobs'",
        "queues=' jobs, '",
        "queues=['jobs']",
        "queues=('jobs',)",
        "queues='*', exclude='strict,atomic'",
        "exclude=['strict', 'atomic']",
    ],
)
def test_call_command_takes_names_as_text_or_as_a_sequence(database, options):
    served = database.enqueue("jobs")
    left = [database.enqueue("strict"), database.enqueue("atomic")]
    imported = "from django.core.management import call_command"
    code = f"{imported}; call_command('runworker', {options}, burst=True)"

    assert database.run("shell", "-c", code).ended_well()

    assert database.handled() == [served.pk]
    assert [database.state(message) for message in left] == ["active"] * 2


def test_as_many_handlers_run_at_once_as_there_are_threads(database, go_on):
    steps = {"started": database.file("started"), "wait_for": database.file("go-on")}
    messages = [database.enqueue("jobs", steps) for _ in range(4)]
    worker = database.start("--threads=3", "--burst")

    wait_until(lambda: database.state(messages[2]) == "locked", "three claims")

    assert [database.state(message) for message in messages] == ["locked"] * 3 + ["active"]
    go_on()
    assert worker.ended_well()
    assert database.left() == 0


def test_a_burst_ends_when_nothing_is_left_to_claim(database):
    later = database.enqueue("jobs", delay=3_600)

    assert database.start("--burst").ended_well()

    assert database.state(later) == "scheduled"


def test_worker_ends_after_max_messages(database):
    ids = database.enqueue_many("jobs", 5)

    assert database.start("--max-messages=3").ended_well()

    assert sorted(database.handled()) == ids[:3]
    assert database.left() == 2


def test_worker_without_reaper_leaves_due_work_to_runreaper(database):
    database.queue("jobs", lock_duration=0.001)
    database.enqueue("jobs")
    (expired,) = database.claim("jobs")
    due = database.enqueue("more-jobs", delay=0.001)
    wait_until(lambda: timing.now_ms() > due.visible_at.timestamp() * 1_000, "the due time")

    assert database.start("--no-reaper", "--burst").ended_well()
    assert [database.state(message) for message in (expired, due)] == ["locked", "scheduled"]
    assert database.run("runreaper", "--once").ended_well()

    assert [database.state(message) for message in (expired, due)] == ["active", "active"]


def test_every_ending_of_a_handler_settles_its_message(database):
    messages = {
        name: database.enqueue(queue, steps)
        for name, queue, steps in [
            ("completed", "jobs", {}),
            ("completed with its effects", "atomic", {}),
            ("completed in a loop", "async", {}),
            ("raised", "more-jobs", {"raise": "no"}),
            ("raised in a loop", "async", {"raise": "no"}),
            ("retried", "jobs", {"retry": 3_600}),
            ("left", "more-jobs", {"exit": 3}),
            ("rejected", "jobs", {"reject": ["Broken", "no hope"]}),
        ]
    }
    rolled_back = database.enqueue("atomic", {"reject": ["Broken"]})

    assert database.start("--burst", "--exclude=noop").ended_well()

    assert {name: database.state(message) for name, message in messages.items()} == {
        "completed": "gone",
        "completed with its effects": "gone",
        "completed in a loop": "gone",
        "raised": "scheduled",
        "raised in a loop": "scheduled",
        "retried": "scheduled",
        "left": "scheduled",
        "rejected": "dead_lettered",
    }
    assert database.state(rolled_back) == "dead_lettered"
    assert rolled_back.pk not in database.handled()


def test_always_failing_message_is_dead_lettered_with_every_error(database):
    database.queue("jobs", max_delivery_count=3, backoff_base=0.05)
    message = database.enqueue("jobs", {"raise": "no way"})
    worker = database.start().wait_ready()

    wait_until(database.dead_letters, "the dead letter")

    (dead,) = database.dead_letters()
    assert dead.pk == message.pk
    assert dead.dead_letter_reason == "MaxDeliveryCountExceeded"
    assert [error["delivery"] for error in dead.errors] == [1, 2, 3]
    assert {error["message"] for error in dead.errors} == {"no way"}
    assert "RuntimeError: no way" in dead.errors[0]["traceback"]
    assert len(database.handled()) == 3
    worker.terminate()
    assert worker.ended_well()


def test_scheduled_message_is_delivered_when_due(database):
    worker = database.start().wait_ready()
    message = database.enqueue("jobs", delay=0.3)

    wait_until(database.effects, "the delivery")

    assert timing.now_ms() >= message.visible_at.timestamp() * 1_000
    worker.terminate()
    assert worker.ended_well()


def test_handler_longer_than_its_lease_keeps_the_lease(database, busy, go_on):
    database.queue("jobs", lock_duration=1)
    worker, message = busy("--threads=2")
    first = database.row(message)["locked_until"]

    def lasts_for_two_leases() -> bool:
        row = database.row(message)
        return (row["locked_until"] - first).total_seconds() > 2

    wait_until(lasts_for_two_leases, "the lease to be renewed")
    go_on()
    wait_until(lambda: database.state(message) == "gone", "the completion")

    assert [delivery for _, delivery, _ in database.effects()] == [1]
    worker.terminate()
    assert worker.ended_well()


# How it ends


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_idle_worker_ends_on_a_signal(database, number):
    worker = database.start().wait_ready()

    worker.signal(number)

    assert worker.ended_well()
    assert "stopped after 0 messages" in worker.output


def test_a_busy_worker_ends_its_handlers_and_begins_nothing_new(database, busy, go_on):
    worker, running = busy()
    waiting = database.enqueue("jobs")

    worker.terminate()
    worker.wait_said("no more claims")
    go_on()

    assert worker.ended_well()
    assert database.state(running) == "gone"
    assert database.row(waiting)["delivery_count"] == 0


def test_handler_beyond_the_shutdown_timeout_releases_its_message(database, busy):
    worker, message = busy("--shutdown-timeout=0.1")

    worker.terminate()

    assert worker.ended_well()
    (again,) = database.claim("jobs")
    assert (again.pk, again.delivery_count, again.interruptions) == (message.pk, 1, 1)
    assert "stopped" in again.errors[0]["message"]


def test_an_atomic_handler_beyond_the_shutdown_timeout_has_done_nothing(database, busy):
    database.queue("atomic", lock_duration=1)
    worker, message = busy("--shutdown-timeout=0.1", queue="atomic", MQLITE_TEST_TIMEOUT="0.1")

    worker.terminate()

    assert worker.exit_code() == 1
    assert "Traceback" not in worker.output
    assert database.effects() == []
    assert database.row(message)["delivery_count"] == 1


@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
def test_second_signal_ends_the_worker_at_once_and_leaves_the_lease(database, busy, second):
    worker, message = busy()
    worker.terminate()
    worker.wait_said("no more claims")

    worker.signal(second)

    assert worker.exit_code() == 128 + second
    row = database.row(message)
    assert (row["state"], row["delivery_count"]) == ("locked", 1)


def test_lone_reaper_works_until_a_signal(database):
    reaper = database.run("runreaper")
    messages = [database.enqueue("jobs", delay=delay) for delay in (0.01, 0.2)]

    wait_until(
        lambda: [database.state(message) for message in messages] == ["active", "active"],
        "the reaper to activate both",
    )
    reaper.terminate()

    assert reaper.ended_well()


# What it rides out


def test_locked_database_delays_only_the_settling(database, busy, go_on):
    worker, message = busy(data={"quiet": True}, MQLITE_TEST_TIMEOUT="0.05")

    with database.locked():
        go_on()
        worker.wait_said("the database failed")
        assert database.state(message) == "locked"
    wait_until(lambda: database.state(message) == "gone", "the completion")

    after = database.enqueue("jobs")
    wait_until(lambda: database.state(after) == "gone", "the next message")
    assert worker.output.count("the database failed") == 1
    assert not database.beside.joinpath("started.2").exists()
    worker.terminate()
    assert worker.ended_well()


def test_a_message_that_another_program_inserts_is_noticed(database):
    worker = database.start("--no-reaper").wait_ready()  # which looks as well, every second

    with database.other_program() as other:
        other.execute(
            "INSERT INTO mqlite_messages (queue, enqueued_at, content_type, body)"
            " VALUES ('jobs', 1, 'application/json', CAST('{}' AS BLOB))"
        )

    wait_until(database.effects, "the delivery")
    worker.terminate()
    assert worker.ended_well()


def test_an_idle_worker_writes_nothing_and_lets_others_write(database):
    database.enqueue("jobs", delay=3_600)
    worker = database.start().wait_ready()
    wal = database.path.with_name(f"{database.path.name}-wal")
    worker.wait_looks(5)
    output = worker.output

    with database.other_program() as other:
        before = other.execute("PRAGMA data_version").fetchone()
        size = wal.stat()
        other.execute("BEGIN IMMEDIATE")  # waits for nobody, and nobody waits for it
        worker.wait_looks(20)
        other.execute("ROLLBACK")
        after = other.execute("PRAGMA data_version").fetchone()

    assert before == after
    assert (wal.stat().st_size, wal.stat().st_mtime_ns) == (size.st_size, size.st_mtime_ns)
    assert worker.output == output
    worker.terminate()
    assert worker.ended_well()
