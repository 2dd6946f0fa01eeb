"""A worker is killed or stopped while it handles a message: only the lease decides.

Kills at random instants: test_orders.py.
"""

import signal

import pytest

from tests.support.waiting import wait_until

SHORT = 0.5
"""Seconds of a lease that is to expire by itself; others expire when the test says so."""


@pytest.mark.rule("10.2")
def test_message_that_kills_its_workers_becomes_a_dead_letter(database):
    database.queue("jobs", lock_duration=SHORT, max_delivery_count=3)
    message = database.enqueue("jobs", {"kill": True})

    for _ in range(3):
        assert database.start("--max-messages=1").exit_code() == -signal.SIGKILL
    worker = database.start().wait_ready()
    database.wait_empty()

    (letter,) = database.dead_letters()
    assert (letter.pk, letter.delivery_count) == (message.pk, 3)
    assert letter.dead_letter_reason == "MaxDeliveryCountExceeded"
    assert len(letter.errors) == 3
    assert database.deliveries() == [1, 2, 3]
    worker.stop()


def test_message_of_a_killed_worker_is_handled_by_another(database, busy):
    database.queue("jobs", retain_completed=3_600)
    killed, message = busy()
    killed.kill()
    assert database.state(message) == "locked"
    database.expire_leases()
    database.go_on()

    worker = database.start()
    database.wait_empty()

    ((handled, delivery_count, name),) = database.effects()
    assert (handled, delivery_count) == (message.pk, 2)
    assert f":{worker.pid}:" in name
    (error,) = database.row(message)["errors"]
    assert error["delivery"] == 1
    assert f":{killed.pid}:" in error["worker"]
    assert database.is_sound()
    worker.stop()


@pytest.mark.rule("10.4")
def test_starting_worker_leaves_a_live_lease_alone(database, busy):
    _, message = busy()
    lock_token = database.row(message)["lock_token"]

    worker = database.start().wait_ready()
    worker.wait_looks(10)

    assert database.row(message)["lock_token"] == lock_token
    worker.stop()


def test_worker_stopped_beyond_its_lease_cannot_settle(database, busy):
    stopped, message = busy(steps={"quiet": True})
    database.freeze(stopped)
    database.expire_leases()
    database.queue("jobs", retain_completed=3_600)
    database.go_on()
    assert database.start("--max-messages=1").ended_well()
    completed = database.row(message)
    assert (completed["state"], completed["delivery_count"]) == ("completed", 2)

    stopped.signal(signal.SIGCONT)
    stopped.wait_said("was lost while its handler ran")

    assert database.row(message) == completed
    after = database.enqueue("jobs")
    wait_until(lambda: database.handled() == [after.pk], "the worker to go on")
    stopped.stop()


def test_resumed_worker_leaves_a_message_that_another_handles(database, busy):
    database.queue("jobs", lock_duration=SHORT)  # so that it soon wants to renew
    stopped, message = busy("--no-reaper")
    database.freeze(stopped)
    database.expire_leases()
    database.queue("jobs")
    worker = database.start("--threads=1")
    database.wait_started(2)
    lock_token = database.row(message)["lock_token"]

    stopped.signal(signal.SIGCONT)
    stopped.wait_said("is lost")

    assert database.row(message)["lock_token"] == lock_token
    database.go_on()
    wait_until(lambda: len(database.effects()) == 2, "both handlers to end")
    database.wait_empty()
    assert database.dead_letters() == []
    worker.stop()
    stopped.stop()
