"""`manage.py runworker` as a process: what it serves, and what happens around it.

How it ends: test_worker_signals.py. Several processes: test_supervisor.py.
"""

import pytest

from django_mqlite import timing
from tests.support.waiting import wait_until


def test_queues_are_served_in_the_order_given_and_no_others(database):
    jobs = database.enqueue_many("jobs", 3)
    more = database.enqueue_many("more-jobs", 3)
    database.enqueue_many("atomic", 3)

    assert database.start("--queues=more-jobs,jobs", "--threads=1", "--burst").ended_well()

    assert database.handled() == [*more, *jobs]
    assert database.left() == 3


def test_queues_with_a_handler_are_served_except_the_excluded(database):
    handled = [database.enqueue(queue).pk for queue in ("jobs", "more-jobs", "atomic", "async")]
    excluded = database.enqueue("strict")
    scheduled = database.enqueue("jobs", delay=3_600)

    assert database.start("--exclude=strict", "--burst").ended_well()

    assert sorted(database.handled()) == handled
    assert [database.state(message) for message in (excluded, scheduled)] == ["active", "scheduled"]


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
def test_call_command_takes_queue_names_as_text_or_sequence(database, options):
    served = database.enqueue("jobs")
    left = [database.enqueue("strict"), database.enqueue("atomic")]
    code = f"call_command('runworker', {options}, burst=True)"

    command = f"from django.core.management import call_command; {code}"
    assert database.run("shell", "-c", command).ended_well()

    assert database.handled() == [served.pk]
    assert [database.state(message) for message in left] == ["active"] * 2


def test_worker_runs_as_many_handlers_as_threads_at_once(database):
    messages = [database.enqueue_waiting() for _ in range(4)]
    worker = database.start("--threads=3", "--burst")

    database.wait_state(messages[2], "locked")

    assert [database.state(message) for message in messages] == ["locked"] * 3 + ["active"]
    database.go_on()
    assert worker.ended_well()
    assert database.left() == 0


def test_worker_ends_after_max_messages(database):
    ids = database.enqueue_many("jobs", 5)

    assert database.start("--max-messages=3").ended_well()

    assert sorted(database.handled()) == ids[:3]
    assert database.left() == 2


def test_worker_without_reaper_leaves_due_messages_to_runreaper(database):
    database.queue("jobs", lock_duration=0.001)
    database.enqueue("jobs")
    (expired,) = database.claim("jobs")
    due = database.enqueue("more-jobs", delay=0.001)
    wait_until(lambda: timing.now_ms() > due.visible_at.timestamp() * 1_000, "the due time")

    assert database.start("--no-reaper", "--burst").ended_well()
    assert [database.state(message) for message in (expired, due)] == ["locked", "scheduled"]
    assert database.run("runreaper", "--once").ended_well()

    assert [database.state(message) for message in (expired, due)] == ["active", "active"]


def test_reaper_process_works_until_a_signal(database):
    reaper = database.run("runreaper")
    messages = [database.enqueue("jobs", delay=delay) for delay in (0.01, 0.2)]

    for message in messages:
        database.wait_state(message, "active")

    reaper.stop()


ENDINGS = {
    "completed": ("jobs", {}, "gone"),
    "completed with its effects": ("atomic", {}, "gone"),
    "completed in a loop": ("async", {}, "gone"),
    "raised": ("more-jobs", {"raise": "no"}, "scheduled"),
    "raised in a loop": ("async", {"raise": "no"}, "scheduled"),
    "retried": ("jobs", {"retry": 3_600}, "scheduled"),
    "left": ("more-jobs", {"exit": 3}, "scheduled"),
    "rejected": ("jobs", {"reject": ["Broken", "no hope"]}, "dead_lettered"),
    "rejected and rolled back": ("atomic", {"reject": ["Broken"]}, "dead_lettered"),
}


def test_message_is_settled_as_its_handler_ended(database):
    messages = {name: database.enqueue(*ending[:2]) for name, ending in ENDINGS.items()}

    assert database.start("--burst").ended_well()

    assert {name: database.state(message) for name, message in messages.items()} == {
        name: state for name, (_, _, state) in ENDINGS.items()
    }
    assert messages["rejected and rolled back"].pk not in database.handled()


def test_message_that_always_fails_becomes_a_dead_letter_with_its_errors(database):
    database.queue("jobs", max_delivery_count=3, backoff_base=0.05)
    message = database.enqueue("jobs", {"raise": "no way"})
    worker = database.start().wait_ready()

    wait_until(database.dead_letters, "the dead letter")

    (letter,) = database.dead_letters()
    assert (letter.pk, letter.dead_letter_reason) == (message.pk, "MaxDeliveryCountExceeded")
    assert [error["delivery"] for error in letter.errors] == [1, 2, 3]
    assert {error["message"] for error in letter.errors} == {"no way"}
    assert "RuntimeError: no way" in letter.errors[0]["traceback"]
    assert len(database.handled()) == 3
    worker.stop()


def test_scheduled_message_is_delivered_when_due(database):
    worker = database.start().wait_ready()
    message = database.enqueue("jobs", delay=0.3)

    wait_until(database.effects, "the delivery")

    assert timing.now_ms() >= message.visible_at.timestamp() * 1_000
    worker.stop()


def test_handler_longer_than_its_lease_keeps_the_lease(database, busy):
    worker, message = busy("--threads=2", lease=1)
    first = database.row(message)["locked_until"]

    wait_until(
        lambda: (database.row(message)["locked_until"] - first).total_seconds() > 2,
        "the lease to be renewed twice",
    )
    database.go_on()
    database.wait_gone(message)

    assert database.deliveries() == [1]
    worker.stop()


def test_locked_database_delays_only_the_settle(database, busy):
    worker, message = busy(steps={"quiet": True}, MQLITE_TEST_TIMEOUT="0.05")

    with database.locked():
        database.go_on()
        worker.wait_said("the database failed")
        assert database.state(message) == "locked"
    database.wait_gone(message)

    database.wait_gone(database.enqueue("jobs"))
    assert worker.output.count("the database failed") == 1
    assert not database.beside.joinpath("started.2").exists()
    worker.stop()


def test_message_inserted_by_another_program_is_noticed(database):
    worker = database.start("--no-reaper").wait_ready()  # the reaper polls as well, every second

    with database.other_program() as other:
        other.execute(
            "INSERT INTO mqlite_messages (queue, enqueued_at, content_type, body)"
            " VALUES ('jobs', 1, 'application/json', CAST('{}' AS BLOB))"
        )

    wait_until(database.effects, "the delivery")
    worker.stop()
