"""Query plans of the store's statements, on databases of several kinds."""

import json
import random
import re
import sqlite3

from tests.support.schema import GOLDEN
from tests.support.statements import PARAMETER

NOW = 1_767_225_600_000
STATES = ("active", "locked", "deferred", "scheduled", "completed", "dead_lettered")

# ANALYZE remembers the database as it was, and the planner believes it long after.
POPULATIONS = {
    # queues, messages, weight of each state as in STATES
    "mixed": (20, 5_000, (1, 1, 1, 1, 1, 1)),
    "one queue of leases": (1, 5_000, (2, 96, 0, 2, 0, 0)),
    "one busy queue": (1, 5_000, (90, 5, 0, 5, 0, 0)),
    "graveyard": (3, 5_000, (1, 1, 0, 1, 1, 96)),
    "archive": (3, 5_000, (1, 1, 0, 1, 96, 1)),
    "set aside": (3, 5_000, (1, 1, 96, 1, 1, 0)),
    "waiting for their time": (3, 5_000, (1, 1, 1, 96, 1, 0)),
    "many queues": (1_000, 5_000, (1, 1, 1, 1, 1, 1)),
}


def empty_database() -> sqlite3.Connection:
    """Return a database in memory with the schema of the golden file."""
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.executescript(GOLDEN.read_text(encoding="utf-8"))
    return connection


def analyzed_database(population: str) -> sqlite3.Connection:
    """Return a database with messages in these states, and the statistics of the planner."""
    connection = empty_database()
    queues, messages, weights = POPULATIONS[population]
    chance = random.Random(0)
    connection.execute("BEGIN")
    connection.executemany(
        "INSERT INTO mqlite_queues (name, created_at, updated_at) VALUES (?, 0, 0)",
        [(f"q{number}",) for number in range(queues)],
    )
    connection.executemany(
        "INSERT INTO mqlite_subscriptions VALUES (?, ?, '', '', 0)",
        [(f"q{number}", f"t{number % 9}") for number in range(queues)],
    )
    connection.executemany(
        "INSERT INTO mqlite_messages (queue, state, priority, line, blocked, visible_at,"
        " enqueued_at, expires_at, locked_until, lock_token, message_id, finished_at, kept_until,"
        " body)"
        " VALUES (?, ?, ?, ?, ?, ?, 0, ?, ?, ?, ?, ?, ?, x'00')",
        [
            _message(chance, number, f"q{number % queues}", *chance.choices(STATES, weights))
            for number in range(messages)
        ],
    )
    records = [
        {"queue": f"q{number % queues}", "number": number, "at": NOW + number}
        for number in range(messages)
    ]
    connection.executemany(
        "INSERT INTO mqlite_settlement_receipts VALUES (:number, 't', :queue, 'complete', '', :at)",
        records,
    )
    connection.executemany(
        "INSERT INTO mqlite_dedup VALUES (:queue, :number, '', :number, :at)", records
    )
    connection.executemany(
        "INSERT INTO mqlite_receive_attempts VALUES (:queue, :number, '[]', NULL, :at)", records
    )
    connection.execute("COMMIT")
    connection.execute("ANALYZE")
    return connection


def _message(chance: random.Random, number: int, queue: str, state: str) -> tuple[object, ...]:
    """Return the columns of a message; a third are in a line, blocked while unfinished."""
    line = f"line {chance.randrange(500)}" if chance.randrange(3) == 0 else None
    finished = state in ("completed", "dead_lettered")
    near = NOW + chance.randrange(-10_000, 10_000)
    return (
        queue,
        state,
        chance.choice([0, 0, 0, 5]),
        line,
        int(line is not None and not finished),
        near,
        chance.choice([0, 0, near]),
        near if state == "locked" else 0,
        "t" if state == "locked" else None,
        chance.choice([None, f"m{number}"]),
        near if finished else 0,
        near + 1_000 if state == "completed" else 0,
    )


class _Likely(dict[str, object]):
    """A likely value for each parameter of a statement: with STAT4 the planner uses them."""

    def __missing__(self, name: str) -> object:
        if name in ("now", "finished_before", "expires_at", "visible_at"):
            return NOW
        if name in ("limit", "max_count", "id"):
            return 1_000
        if name in ("ids", "leases", "dues", "drafts"):
            return json.dumps([[number, "t", "q0"] for number in range(100)])
        return "q0"


def plan_of(connection: sqlite3.Connection, sql: str) -> list[str]:
    """Return the lines of EXPLAIN QUERY PLAN."""
    native = PARAMETER.sub(r":\1", sql).replace("%%", "%")
    rows = connection.execute(f"EXPLAIN QUERY PLAN {native}", _Likely()).fetchall()
    return [detail for *_, detail in rows]


_TABLES = re.compile(r"\b(?:FROM|JOIN|UPDATE|INTO)\s+(mqlite_\w+)(?:\s+AS\s+(\w+))?")
_ACCESS = re.compile(r"(SCAN|SEARCH) (\w+)(?: EXISTS)?(?: USING (.*))?")


def accesses(plan: list[str], sql: str, table: str) -> set[str]:
    """Return the ways in which the plan accesses the table, under any alias.

    "INDEX name (terms)" for a search, "SCAN" for a walk from end to end, with an index or not.
    """
    names = {alias or name for name, alias in _TABLES.findall(sql) if name == table}
    ways = set()
    for line in plan:
        match = _ACCESS.match(line)
        if match and match[2] in names:
            searched = match[1] == "SEARCH" and match[3]
            ways.add(match[3].replace("COVERING ", "") if searched else "SCAN")
    return ways
