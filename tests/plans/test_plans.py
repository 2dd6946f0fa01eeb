"""Every statement's query plan is pinned, without statistics and with those of eight databases.

A plan that depends on the last ANALYZE may one day scan a million rows under the write lock.
"""

import re

import pytest

from tests.support.plans import (
    POPULATIONS,
    accesses,
    analyzed_database,
    empty_database,
    plan_of,
)
from tests.support.statements import statements

# One process builds the databases once, whatever the number of xdist workers.
pytestmark = pytest.mark.xdist_group("plans")

# dbstat is an option of SQLite's build; a statement on it reads the file, and not the messages.
STATEMENTS = {name: s for name, s in statements().items() if "FROM dbstat" not in s.sql}
ON_MESSAGES = {name: s for name, s in STATEMENTS.items() if "mqlite_messages" in s.sql}

BY_ID = "INTEGER PRIMARY KEY (rowid=?)"
HEADS = "INDEX mqlite_messages_active (queue=? AND blocked=?)"
LIVE_LEASES = "INDEX mqlite_messages_locked (queue=? AND locked_until>?)"
DEAD = "INDEX mqlite_messages_dead (queue=?)"
DEAD_SINCE = "INDEX mqlite_messages_dead (queue=? AND finished_at<?)"
DEAD_BETWEEN = "INDEX mqlite_messages_dead (queue=? AND finished_at>? AND finished_at<?)"
KEPT_LONG_ENOUGH = "INDEX mqlite_messages_kept (kept_until<?)"
UNIQUE_KEY = "INDEX mqlite_messages_unique_key (queue=? AND unique_key=?)"
EACH_STATE = {
    f"INDEX mqlite_messages_{state} (queue=?)"
    for state in ("active", "locked", "scheduled", "deferred", "dead", "completed")
}
UNFINISHED = EACH_STATE - {
    "INDEX mqlite_messages_dead (queue=?)",
    "INDEX mqlite_messages_completed (queue=?)",
}

STATS = EACH_STATE | {
    HEADS,
    LIVE_LEASES,
    "INDEX mqlite_messages_dead (queue=? AND finished_at>?)",
    "INDEX mqlite_messages_locked (queue=? AND locked_until<?)",
    "INDEX mqlite_messages_scheduled (queue=? AND visible_at<?)",
}

# How each statement may access messages.
EXPECTED = {
    "find.ARRIVALS": {"INTEGER PRIMARY KEY (rowid>?)"},
    "find.BROWSE_SIZES": EACH_STATE | {BY_ID},
    "find.MESSAGES_BY_ID": {BY_ID},
    "find.CONTAINING": {BY_ID},
    "find.FIRST_ID_SINCE": {"INTEGER PRIMARY KEY (rowid>?)"},
    "find.PEEK": {"INDEX mqlite_messages_active (queue=?)"},
    "find.TOTAL_BYTES": {BY_ID},
    "find.PEEK_DEAD_LETTERS": {DEAD},
    "operations.CANCEL": {BY_ID},
    "dead_letters.NEWEST_FINISHED_AT": {DEAD},
    "retention.KEEP_LONGER": {BY_ID},
    "claim.CLAIM": {BY_ID, HEADS},
    "claim.CLAIMABLE": {HEADS},
    "claim.CLAIM_AND_DELETE": {BY_ID, HEADS},
    "claim.CLAIM_DEFERRED": {
        BY_ID,
        "INDEX mqlite_messages_deferred (queue=? AND id=? AND rowid=?)",
        "INDEX mqlite_messages_deferred (queue=? AND id=? AND state=? AND rowid=?)",
    },
    "claim.HAS_LINES": {"INDEX mqlite_messages_head (queue=? AND line>?)"},
    "claim.REPLAY_ATTEMPT": {BY_ID},
    "duplicates.HOLDERS": {UNIQUE_KEY},
    "enqueue.ENQUEUE": {UNIQUE_KEY},
    "enqueue.ENQUEUE_MANY": set(),
    "explain.AHEAD": {
        "INDEX mqlite_messages_active (queue=? AND blocked=? AND priority>?)",
        "INDEX mqlite_messages_active (queue=? AND blocked=? AND priority=? AND id<?)",
    },
    "explain.HEAD_OF_LINE": {"INDEX mqlite_messages_head (queue=? AND line=?)"},
    "explain.NEIGHBOURS": {
        "INTEGER PRIMARY KEY (rowid<?)",
        "INTEGER PRIMARY KEY (rowid>?)",
    },
    "explain.NEWEST_ID": set(),
    "find.IDS_BY_STATE": EACH_STATE,
    "find.DEAD_LETTER_IDS": {"INDEX mqlite_messages_died (finished_at>?)"},
    "find.NEWEST_IDS": {"INTEGER PRIMARY KEY (rowid>? AND rowid<?)"},
    "find.GROUP_IDS": {"INDEX mqlite_messages_group_id (group_id=? AND rowid>? AND rowid<?)"},
    "find.IDENTIFIER_IDS": {
        BY_ID,
        "INDEX mqlite_messages_message_id (message_id=?)",
        "INDEX mqlite_messages_correlation_id (correlation_id=?)",
    },
    "find.SUBJECT_IDS": {"INDEX mqlite_messages_subject (subject>? AND subject<?)"},
    "explain.MESSAGE_STATUS": {BY_ID},
    "retention.COMPLETED_TO_PRUNE": {KEPT_LONG_ENOUGH},
    "retention.DEAD_LETTER_BOUNDS": {DEAD},
    "retention.PRUNE_COMPLETED": {BY_ID},
    "retention.TOO_LARGE": {DEAD},
    "retention.TOO_MANY": {DEAD},
    "retention.TOO_OLD": {DEAD_SINCE},
    "queues.ORDERED_MESSAGES": EACH_STATE - {"INDEX mqlite_messages_completed (queue=?)"},
    "queues.QUEUE_STATS": STATS,
    "queues.STATS_OF_QUEUE": STATS,
    "queues.BLOCKING_HEADS": {BY_ID, "INDEX mqlite_messages_head (queue=? AND line=?)"},
    "schedules.UNFINISHED_STATE": {BY_ID},
    "sweeps.ACTIVATE_DUE": {BY_ID, "INDEX mqlite_messages_scheduled (queue=? AND visible_at<?)"},
    "sweeps.DEAD_LETTER_TTL_EXPIRED": {BY_ID},
    "sweeps.DELETE_TTL_EXPIRED": {BY_ID},
    "sweeps.TTL_EXPIRED": {"INDEX mqlite_messages_expiring (expires_at>? AND expires_at<?)"},
    "sweeps.NEXT_EVENT": {
        "INDEX mqlite_messages_expiring (expires_at>?)",
        "INDEX mqlite_messages_locked (queue=?)",
        "INDEX mqlite_messages_scheduled (queue=?)",
    },
    "leases.RELEASE_EXPIRED_LEASES": {
        BY_ID,
        "INDEX mqlite_messages_locked (queue=? AND locked_until<?)",
    },
    "limits.LIMITS": {LIVE_LEASES},
    "leases.RELEASE_WORKER": {BY_ID, "INDEX mqlite_messages_locked (queue=?)"},
    "workers.BUSY_SLOTS": {LIVE_LEASES},
    "workers.HELD_LEASES": {LIVE_LEASES},
    "dead_letters.COPY_DEAD_LETTERS": {BY_ID},
    "dead_letters.COPY_EDITED": {BY_ID, UNIQUE_KEY},
    "dead_letters.COUNT_BY_ERROR": {"INDEX mqlite_messages_died (finished_at>?)"},
    "dead_letters.COUNT_BY_ERROR_IN_QUEUE": {DEAD},
    "dead_letters.NEXT_BATCH": {DEAD_BETWEEN},
    "deletion.WAITING_IDS": UNFINISHED - {"INDEX mqlite_messages_locked (queue=?)"} | {DEAD},
    "deletion.DELETE_WAITING": {BY_ID},
    "deletion.COMPLETED_BATCH": {
        "INDEX mqlite_messages_completed (queue=? AND finished_at>? AND finished_at<?)"
    },
    "dead_letters.PURGE": {BY_ID},
    "dead_letters.DUPLICATES_IN_QUEUE": {BY_ID, UNIQUE_KEY},
    "dead_letters.SKIPPED_DUPLICATES": {BY_ID},
    "dead_letters.REDRIVE": {BY_ID, UNIQUE_KEY},
    "dead_letters.UNGROUPED_DEAD_LETTER": {BY_ID},
    "leases.HELD_TOKEN": {BY_ID},
    "leases.INTERRUPT": {BY_ID},
    "leases.RELEASE_LEASE": {BY_ID},
    "leases.ENDED_LEASES": {f"{BY_ID} LEFT-JOIN"},
    "operations.ACTIVATE": {BY_ID},
    "operations.DISCARD": {BY_ID},
    "operations.RUN_NOW": {BY_ID},
    "operations.UNFINISHED_IDS": UNFINISHED,
    "operations.UNFINISHED_IDS_OF_CLASS": UNFINISHED,
    "settle.HELD": {BY_ID},
    "settle.RENEW": {BY_ID},
    "settle.ABANDON": {BY_ID},
    "settle.BACKOFF": {BY_ID},
    "settle.COMPLETE": {BY_ID},
    "settle.DEFER": {BY_ID},
    "settle.REJECT": {BY_ID},
    "settle.RETRY_UNCOUNTED": {BY_ID},
    "settle.SET_PROGRESS": {BY_ID},
    "settle.RETAIN": {BY_ID},
    "queues.OLDEST_ENQUEUED_AT": {
        BY_ID,
        "INDEX mqlite_messages_active (queue=?)",
        "INDEX mqlite_messages_locked (queue=?)",
    },
    "queues.EMPTY_QUEUE": EACH_STATE | {BY_ID},
    "queues.HAS_WORK": EACH_STATE - {"INDEX mqlite_messages_completed (queue=?)"},
}


@pytest.fixture(scope="module")
def databases():
    """A database without statistics, and one with the statistics of each population."""
    made = {population: analyzed_database(population) for population in POPULATIONS}
    made["no statistics"] = empty_database()
    yield made
    for connection in made.values():
        connection.close()


def in_each(databases, look):
    """Return what `look` returns for each database, if it returns anything."""
    return {name: result for name, connection in databases.items() if (result := look(connection))}


@pytest.mark.rule("11.2")
@pytest.mark.parametrize("name", STATEMENTS)
@pytest.mark.parametrize(
    "table",
    ["mqlite_messages", "mqlite_settlement_receipts", "mqlite_receive_attempts", "mqlite_dedup"],
)
def test_statement_does_not_scan_a_large_table(databases, name, table):
    sql = STATEMENTS[name].sql

    def scan(connection):
        plan = plan_of(connection, sql)
        return plan if "SCAN" in accesses(plan, sql, table) else None

    assert in_each(databases, scan) == {}


@pytest.mark.rule("11.2")
@pytest.mark.parametrize("name", ON_MESSAGES)
def test_statement_accesses_messages_by_its_index(databases, name):
    sql = STATEMENTS[name].sql

    def other(connection):
        return accesses(plan_of(connection, sql), sql, "mqlite_messages") - EXPECTED[name]

    assert in_each(databases, other) == {}


def test_every_statement_on_messages_has_an_expected_plan():
    assert set(EXPECTED) == set(ON_MESSAGES)


@pytest.mark.rule("11.2")
@pytest.mark.parametrize(
    "name",
    [
        *(name for name in STATEMENTS if name.startswith("claim.")),
        *(
            name
            for name in STATEMENTS
            if name.startswith("find.") and name not in ("find.IDENTIFIER_IDS", "find.BROWSE_SIZES")
        ),
        "queues.QUEUE_STATS",
        "dead_letters.NEXT_BATCH",
        "deletion.COMPLETED_BATCH",
    ],
)
def test_statement_reads_rows_in_index_order_without_sorting(databases, name):
    def sorts(connection):
        plan = plan_of(connection, STATEMENTS[name].sql)
        return [line for line in plan if "TEMP B-TREE" in line]

    assert in_each(databases, sorts) == {}


def triggers():
    """Return the statements of each trigger, with the columns of NEW and OLD as parameters."""
    connection = empty_database()
    bodies = {}
    rows = connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'")
    for name, sql in rows.fetchall():
        body = re.search(r"\bBEGIN\b(.*)\bEND\b", sql, re.DOTALL)[1]
        for number, statement in enumerate(filter(str.strip, body.split(";"))):
            bodies[f"{name}[{number}]"] = re.sub(r"\b(NEW|OLD)\.(\w+)", r":\2", statement)
    connection.close()
    return bodies


TRIGGERS = triggers()


def test_triggers_are_found():
    assert len(TRIGGERS) >= 5


@pytest.mark.parametrize("name", TRIGGERS)
def test_trigger_accesses_its_line_by_index(databases, name):
    sql = TRIGGERS[name]
    allowed = {
        BY_ID,
        "INDEX mqlite_messages_head (queue=? AND line=?)",
        "INDEX mqlite_messages_head (queue=? AND line=? AND rowid>?)",
        "INDEX mqlite_messages_waiting (queue=? AND line=?)",
    }

    def other(connection):
        return accesses(plan_of(connection, sql), sql, "mqlite_messages") - allowed

    assert in_each(databases, other) == {}
