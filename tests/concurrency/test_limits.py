"""Workers and other processes claim from limited queues and are killed at random.

A trigger that knows nothing of the limits notes each lease with its time and the number of live
leases of its queue.
"""

import os
import random
import sqlite3
from contextlib import ExitStack, closing
from dataclasses import dataclass

import pytest

from tests.support.files import create_database, rows, running
from tests.support.waiting import wait_until

# The processes run once, whatever the number of xdist workers.
pytestmark = pytest.mark.xdist_group("limited")

KILLS = int(os.environ.get("MQLITE_TEST_CRASH_ROUNDS", "10"))
PROCESSES = 6
CLAIMS_BETWEEN_KILLS = 40


@dataclass(frozen=True, kw_only=True)
class Limits:
    max_in_flight: int = 0
    count: int = 0
    period_ms: int = 0


QUEUES = {
    "leases": Limits(max_in_flight=3),
    "rated": Limits(count=5, period_ms=100),
    "both": Limits(max_in_flight=2, count=3, period_ms=50),
}

# A killed process holds its leases for 0.2 s.
PREPARE = """
    UPDATE mqlite_queues SET lock_duration_ms = 200, backoff_base_ms = 0;
    CREATE TABLE claimed (queue TEXT, at INTEGER, live INTEGER);
    CREATE TRIGGER note_claim AFTER UPDATE OF state ON mqlite_messages
    WHEN NEW.state = 'locked' AND OLD.state <> 'locked' BEGIN
        INSERT INTO claimed VALUES (NEW.queue, NEW.locked_at,
            (SELECT count(*) FROM mqlite_messages
              WHERE queue = NEW.queue AND state = 'locked' AND locked_until > NEW.locked_at));
    END;
"""
LIMIT = """
    UPDATE mqlite_queues SET max_in_flight = ?, rate_count = ?, rate_period_ms = ? WHERE name = ?
"""
FILL = """
    INSERT INTO mqlite_messages (queue, enqueued_at, body)
    WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 50)
    SELECT ?, 0, x'' FROM n
"""


def prepare(path):
    create_database(path, **dict.fromkeys(QUEUES, "standard"))
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.executescript(PREPARE)
        for name, limits in QUEUES.items():
            values = (limits.max_in_flight, limits.count, limits.period_ms, name)
            connection.execute(LIMIT, values)
            connection.execute(FILL, [name])


@pytest.fixture(scope="module")
def claims(tmp_path_factory):
    """Run the processes and kill them one by one; return time and live leases, by queue."""
    path = tmp_path_factory.mktemp("limited") / "db.sqlite3"
    prepare(path)
    chance = random.Random(KILLS)
    with ExitStack() as stack:

        def start(number):
            kind = "worker" if number % 2 else "claimer"
            arguments = ("tests.concurrency.limited", path, kind, *QUEUES)
            return stack.enter_context(running(*arguments))

        processes = [start(number) for number in range(PROCESSES)]
        for _ in range(KILLS):
            before = claimed(path)
            wait_until(
                lambda before=before: claimed(path) > before + CLAIMS_BETWEEN_KILLS,
                "the processes to claim",
            )
            number = chance.randrange(PROCESSES)
            assert processes[number].poll() is None, processes[number].stderr.read()
            processes[number].kill()
            processes[number].wait()
            processes[number] = start(number)
    assert rows(path, "PRAGMA integrity_check") == [("ok",)]
    sql = "SELECT at, live FROM claimed WHERE queue = '{}' ORDER BY rowid"
    return {name: rows(path, sql.format(name)) for name in QUEUES}


def claimed(path):
    return rows(path, "SELECT count(*) FROM claimed")[0][0]


def exceeds(times, count, period_ms):
    """Return whether a time span has more claims than count + count * length / period.

    For the claims i to j: (j - i + 1 - count) * period > count * (t[j] - t[i]).
    """
    lowest = None
    for index, at in enumerate(times):
        value = index * period_ms - count * at
        lowest = value if lowest is None else min(lowest, value)
        if value - lowest > (count - 1) * period_ms:
            return True
    return False


@pytest.mark.rule("17.2")
@pytest.mark.parametrize("queue", ["leases", "both"])
def test_live_leases_never_exceed_the_limit_and_reach_it(claims, queue):
    assert max(live for _, live in claims[queue]) == QUEUES[queue].max_in_flight


@pytest.mark.rule("17.3")
@pytest.mark.parametrize("queue", ["rated", "both"])
def test_no_time_span_has_more_deliveries_than_the_rate(claims, queue):
    times = [at for at, _ in claims[queue]]
    limits = QUEUES[queue]

    assert times == sorted(times)
    assert not exceeds(times, limits.count, limits.period_ms)


@pytest.mark.rule("17.3")
def test_processes_use_the_rate_up(claims):
    """Otherwise the test above proves nothing."""
    times = [at for at, _ in claims["rated"]]
    limits = QUEUES["rated"]

    assert exceeds(times, limits.count - 1, limits.period_ms)


@pytest.mark.parametrize(
    ("times", "exceeded"),
    [
        ([0, 0], False),
        ([0, 0, 0], True),
        ([0, 0, 49], True),
        ([0, 0, 50], False),
        ([0, 0, 50, 100, 149], True),
        ([0, 90, 90, 90], True),
        ([0, 90, 90, 140], False),
    ],
    ids=str,
)
def test_oracle_detects_an_exceeded_rate(times, exceeded):
    assert exceeds(times, 2, 100) is exceeded
