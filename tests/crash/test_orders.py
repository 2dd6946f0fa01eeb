"""Producers and workers killed at random instants: every order has its message and its effect.

`make crash` asks for more rounds.
"""

import os
import random
import subprocess
import sys
import time
from collections import Counter

import pytest

from tests.support.source import ROOT
from tests.support.waiting import PATIENCE, wait_until

ROUNDS = int(os.environ.get("MQLITE_TEST_CRASH_ROUNDS", "4"))
LEASE = 2.0
"""Seconds; a lease that no other worker of this host releases sooner."""

# A producer that never pauses can starve a worker that starts for longer than the usual 5 s.
PATIENT = {"MQLITE_TEST_TIMEOUT": "30"}


@pytest.fixture
def orders(database):
    """The table of the shop, in the queue's own database."""
    with database.other_program() as other:
        other.execute("CREATE TABLE shop_order (id INTEGER PRIMARY KEY, message INTEGER NOT NULL)")
    for queue in ("jobs", "atomic"):
        database.queue(queue, lock_duration=LEASE, max_delivery_count=ROUNDS + 3, backoff_base=0)
    return database


@pytest.fixture
def start_producer(orders, tmp_path):
    """Start a process that places orders until it is killed and writes the ids of commits."""
    processes = []

    def start() -> subprocess.Popen:
        with (tmp_path / "producer.log").open("ab") as errors:
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.crash.orders", str(tmp_path / "acknowledged")],
                cwd=ROOT,
                env={**os.environ, **orders.environment(), **PATIENT},
                stdin=subprocess.DEVNULL,
                stderr=errors,
            )
        processes.append(process)
        return process

    yield start
    for process in processes:
        process.kill()
        process.wait()


def start_worker(orders):
    return orders.start("--threads=3", "--queues=jobs,atomic", **PATIENT)


def acknowledged(path) -> list[int]:
    """Return the ids of whole lines only; the last line may have been cut short."""
    text = path.read_text() if path.exists() else ""
    return [int(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def test_killed_processes_leave_every_order_with_message_and_effect(
    orders, start_producer, tmp_path
):
    chance = random.Random()
    log = tmp_path / "acknowledged"
    workers = [start_worker(orders) for _ in range(2)]

    for _ in range(ROUNDS):
        enough = len(acknowledged(log)) + chance.randrange(1, 40)
        producer = start_producer()
        wait_until(lambda: len(acknowledged(log)) >= enough, "some orders")  # noqa: B023 - called here
        victim = chance.randrange(2)
        workers[victim].wait_ready()
        time.sleep(chance.random() * 0.02)  # the instant is the random part, not a wait
        for kill in chance.sample([producer.kill, workers[victim].kill], 2):
            kill()
        producer.wait(PATIENCE)
        assert orders.is_sound()
        workers[victim] = start_worker(orders)
    orders.wait_empty(seconds=120)

    placed = dict(orders.rows("SELECT message, id FROM shop_order"))
    effects = Counter(orders.handled())
    assert orders.dead_letters() == []
    assert set(effects) == set(placed)
    assert set(acknowledged(log)) <= set(placed)
    assert max(effects.values()) <= ROUNDS + 1
    queues = dict(orders.rows("SELECT DISTINCT message, queue FROM worker_app_effect"))
    assert not [id for id, count in effects.items() if count > 1 and queues[id] == "atomic"]
    assert set(queues.values()) == {"jobs", "atomic"}
    deliveries = Counter((message, delivery) for message, delivery, _ in orders.effects())
    assert set(deliveries.values()) == {1}
    for worker in workers:
        worker.wait_ready().stop()
