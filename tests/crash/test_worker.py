"""A worker dies, stops or hangs at the worst moment: nothing is lost, the lease alone decides."""

import os
import random
import signal
from collections import Counter

import pytest
from django.db import OperationalError

from tests.support.waiting import wait_until

ROUNDS = int(os.environ.get("MQLITE_TEST_CRASH_ROUNDS", "6"))
"""Kills per test; `make crash` asks for more."""

SHORT = 0.5
"""Seconds of a lease that is to run out by itself; any other does when the test says so."""


@pytest.fixture
def busy(database):
    """A worker in the first delivery of a message, whose handler waits for the file `go-on`."""

    def start(*arguments, **data):
        steps = {"started": database.file("started"), "wait_for": database.file("go-on")}
        message = database.enqueue("jobs", {**steps, **data})
        worker = database.start(*arguments)
        wait_until(database.beside.joinpath("started.1").exists, "the handler to start")
        return worker, message

    return start


@pytest.fixture
def go_on(database):
    """Lets waiting handlers end."""
    return database.beside.joinpath("go-on").touch


def wait_empty(database) -> None:
    wait_until(lambda: database.left() == 0, "every message to be finished", seconds=60)


def stop(worker) -> None:
    worker.terminate()
    assert worker.ended_well()


def test_a_message_whose_worker_is_killed_is_handled_by_another_once_more(database, busy, go_on):
    worker, message = busy()
    worker.kill()
    assert database.state(message) == "locked"
    database.expire_leases()
    go_on()

    other = database.start()
    wait_empty(database)

    ((handled, delivery_count, by),) = database.effects()
    assert (handled, delivery_count) == (message.pk, 2)
    assert f":{other.pid}:" in by
    assert database.is_sound()
    stop(other)


def test_the_killed_delivery_is_remembered_among_the_errors(database, busy, go_on):
    worker, message = busy(reject=["Broken", "no hope"])
    worker.kill()
    database.expire_leases()
    go_on()

    assert database.start("--max-messages=1").ended_well()

    (dead,) = database.dead_letters()
    assert dead.pk == message.pk
    assert [error["delivery"] for error in dead.errors] == [1, 2]
    assert f":{worker.pid}:" in dead.errors[0]["worker"]


def test_a_live_lease_is_not_touched_by_a_worker_that_starts(database, busy):
    _, message = busy()
    lease = database.row(message)["lock_token"]

    other = database.start().wait_ready()
    other.wait_looks(10)

    assert database.row(message)["lock_token"] == lease
    stop(other)


def test_a_message_that_kills_every_worker_ends_in_the_dead_letters(database):
    database.queue("jobs", lock_duration=SHORT, max_delivery_count=3)
    message = database.enqueue("jobs", {"kill": True})

    for _ in range(3):
        assert database.start("--max-messages=1").exit_code() == -signal.SIGKILL
    last = database.start().wait_ready()
    wait_empty(database)

    (dead,) = database.dead_letters()
    assert (dead.pk, dead.delivery_count) == (message.pk, 3)
    assert dead.dead_letter_reason == "MaxDeliveryCountExceeded"
    assert len(dead.errors) == 3
    assert [delivery for _, delivery, _ in database.effects()] == [1, 2, 3]
    stop(last)


def test_a_worker_that_is_stopped_longer_than_its_lease_cannot_settle(database, busy, go_on):
    stopped, message = busy("--threads=1", quiet=True)
    database.freeze(stopped)
    database.expire_leases()
    database.queue("jobs", retain_completed=3_600)
    go_on()
    other = database.start("--max-messages=1")
    assert other.ended_well()
    completed = database.row(message)
    assert (completed["state"], completed["delivery_count"]) == ("completed", 2)

    stopped.signal(signal.SIGCONT)
    stopped.wait_said("was lost while its handler ran")

    assert database.row(message) == completed
    after = database.enqueue("jobs")
    wait_until(lambda: database.handled() == [after.pk], "the worker to go on")
    stop(stopped)


def test_resumed_worker_leaves_a_message_that_another_runs(database, busy, go_on):
    database.queue("jobs", lock_duration=SHORT)  # so that it soon wants to renew
    stopped, message = busy("--threads=1", "--no-reaper")
    database.freeze(stopped)
    database.expire_leases()
    database.queue("jobs")
    other = database.start("--threads=1")
    wait_until(database.beside.joinpath("started.2").exists, "the second delivery")
    lease = database.row(message)["lock_token"]

    stopped.signal(signal.SIGCONT)
    stopped.wait_said("is lost")

    assert database.row(message)["lock_token"] == lease
    go_on()
    wait_until(lambda: len(database.effects()) == 2, "both handlers to end")
    wait_empty(database)
    assert database.dead_letters() == []
    stop(other)
    stop(stopped)


def test_handler_that_holds_the_interpreter_is_redelivered_at_most_once(database):
    message = database.enqueue("jobs", {"started": database.file("started"), "hog": 1})
    worker = database.start("--threads=2")
    wait_until(database.beside.joinpath("started.1").exists, "the handler to start")
    database.expire_leases()

    wait_empty(database)

    deliveries = Counter(handled for handled, _, _ in database.effects())
    assert deliveries[message.pk] in (1, 2)
    after = database.enqueue("jobs")
    wait_until(lambda: database.state(after) == "gone", "the worker to go on")
    stop(worker)


def produce(database, chance) -> list[int]:
    """Messages for both queues, each in a commit of its own, for a random while."""
    ids = []
    for _ in range(chance.randrange(5, 60)):
        try:
            ids.append(database.enqueue(chance.choice(["jobs", "atomic"])).pk)
        except OperationalError as error:  # pragma: no cover - only told, so that it is not lost
            pytest.fail(f"an enqueue was refused: {error}")
    return ids


def test_kills_at_random_instants_lose_nothing_and_double_no_atomic_effect(database):
    bound = ROUNDS + 1
    for queue in ("jobs", "atomic"):
        database.queue(queue, max_delivery_count=bound)
    chance = random.Random()
    ids = []

    for _ in range(ROUNDS):
        worker = database.start("--threads=3", "--queues=jobs,atomic").wait_ready()
        ids += produce(database, chance)
        worker.kill()
        assert database.is_sound()
        database.expire_leases()
    last = database.start("--queues=jobs,atomic")
    wait_empty(database)

    assert database.dead_letters() == []
    effects = Counter(database.handled())
    assert set(effects) == set(ids)
    queues = dict(database.rows("SELECT DISTINCT message, queue FROM worker_app_effect"))
    doubled = {id: count for id, count in effects.items() if count > 1}
    assert not [id for id in doubled if queues[id] == "atomic"]
    assert max(effects.values()) <= bound
    deliveries = Counter((message, delivery) for message, delivery, _ in database.effects())
    assert set(deliveries.values()) == {1}
    stop(last)
