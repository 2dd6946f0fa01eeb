"""Eight processes claim from one file, and an oracle checks every lease afterwards."""

import json
import sqlite3
from collections import defaultdict
from contextlib import ExitStack, closing
from itertools import pairwise

import pytest

from tests.support.files import create_database, rows, running

# The processes run once, whatever the number of xdist workers.
pytestmark = pytest.mark.xdist_group("claimers")

PROCESSES = 8
MESSAGES = 160
QUEUES = {"jobs": "standard", "groups": "group_fifo", "strict": "strict_fifo"}
ENQUEUE = """
    INSERT INTO mqlite_messages (queue, line, blocked, group_id, enqueued_at, body)
    WITH RECURSIVE n(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM n WHERE n < {count} - 1)
    SELECT 'jobs', NULL, 0, NULL, 0, x'' FROM n WHERE n % 4 < 2
    UNION ALL SELECT 'groups', 'g' || (n % 7), 1, 'g' || (n % 7), 0, x'' FROM n WHERE n % 4 = 2
    UNION ALL SELECT 'strict', '', 1, NULL, 0, x'' FROM n WHERE n % 8 = 3
"""


def enqueue_many(path, count):
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(ENQUEUE.format(count=count))
        return {id for (id,) in connection.execute("SELECT id FROM mqlite_messages")}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Run the claimers; return the ids of the messages and every lease."""
    directory = tmp_path_factory.mktemp("claimers")
    path = create_database(directory / "db.sqlite3", **QUEUES)
    ids = enqueue_many(path, MESSAGES)
    logs = [directory / f"{number}.log" for number in range(PROCESSES)]
    with ExitStack() as stack:
        claimers = [
            stack.enter_context(
                running("tests.concurrency.claimer", path, f"claimer-{number}", log, *QUEUES)
            )
            for number, log in enumerate(logs)
        ]
        for claimer in claimers:
            assert claimer.stdout.readline() == "ready\n", claimer.stderr.read()
        for claimer in claimers:
            claimer.stdin.write("go\n")
            claimer.stdin.flush()
        for claimer in claimers:
            _, errors = claimer.communicate(timeout=150)
            assert (claimer.returncode, errors) == (0, "")
    assert rows(path, "SELECT count(*) FROM mqlite_messages") == [(0,)]
    assert rows(path, "PRAGMA integrity_check") == [("ok",)]
    leases = [json.loads(line) for log in logs for line in log.read_text().splitlines()]
    return ids, leases


def by(leases, *names):
    groups = defaultdict(list)
    for lease in sorted(leases, key=lambda lease: (lease["from"], lease["delivery"], lease["id"])):
        groups[tuple(lease[name] for name in names)].append(lease)
    return groups


def overlapping(leases):
    """Return the pairs of which the second began while the first was live."""
    return [
        (first, second) for first, second in pairwise(leases) if second["from"] < first["until"]
    ]


@pytest.mark.rule("2.4")
def test_message_never_has_two_live_leases(run):
    _, leases = run

    assert [pair for group in by(leases, "id").values() for pair in overlapping(group)] == []


@pytest.mark.rule("2.2")
def test_each_delivery_has_its_own_count_and_token(run):
    ids, leases = run

    assert set(by(leases, "id")) == {(id,) for id in ids}
    for group in by(leases, "id").values():
        assert [lease["delivery"] for lease in group] == list(range(1, len(group) + 1))
    assert len(by(leases, "token")) == len(leases)


def test_each_message_is_completed_once(run):
    ids, leases = run

    completed = [x["id"] for x in leases if x["settled"] and x["way"] in ("complete", "renew")]
    assert sorted(completed) == sorted(ids)


@pytest.mark.rule("6.4")
def test_line_never_has_two_live_leases_and_keeps_its_order(run):
    _, leases = run
    lines = {line: group for (line,), group in by(leases, "line").items() if line is not None}

    assert len(lines) == 8
    for group in lines.values():
        assert overlapping(group) == []
        assert [lease["id"] for lease in group] == sorted(lease["id"] for lease in group)


def test_processes_compete_for_messages(run):
    """Otherwise the tests above prove nothing: leases must expire and messages change hands."""
    _, leases = run
    redelivered = [group for group in by(leases, "id").values() if len(group) > 1]

    assert len(redelivered) > 10
    assert {lease["way"] for lease in leases} >= {"complete", "abandon", "renew", "forget"}


@pytest.mark.parametrize(("start_at", "caught"), [(0, True), (9, True), (10, False), (11, False)])
def test_oracle_detects_an_overlap(start_at, caught):
    first = {"from": 0, "until": 10}

    assert bool(overlapping([first, {"from": start_at, "until": 20}])) is caught
