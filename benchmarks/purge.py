"""Does a purge of 200,000 dead letters block writers? Their waits with and without it."""

import time
from threading import Event, Thread

from django.db import connection, connections

from benchmarks.measure import Row, percentiles
from benchmarks.processes import writers
from django_mqlite.models import DeadLetter, Queue

DEAD_LETTERS = 200_000
WRITERS = 4
SECONDS = 8.0

FILL = """
INSERT INTO mqlite_messages (queue, state, visible_at, enqueued_at, finished_at, body)
SELECT 'dead', 'dead_lettered', 1, 1, 1, zeroblob(256)
  FROM (WITH RECURSIVE n(value) AS (SELECT 0 UNION ALL SELECT value + 1 FROM n LIMIT %s)
        SELECT value FROM n)
"""


def run() -> list[Row]:
    for name in ("noop", "dead"):
        Queue.objects.create_queue(name)
    with connection.cursor() as cursor:
        cursor.execute(FILL, [DEAD_LETTERS])
        cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    alone = row("alone", writers(WRITERS, SECONDS))
    spent: list[float] = []
    purging = Thread(target=purge, args=(spent,))
    purging.start()
    beside = row("beside the purge", writers(WRITERS, SECONDS))
    purging.join()
    return [alone, {**beside, "purge s": round(spent[0], 1)}]


def purge(spent: list[float]) -> None:
    Event().wait(1.0)  # the writers have started
    started = time.perf_counter()
    DeadLetter.objects.purge_queue("dead", everything=True)
    spent.append(time.perf_counter() - started)
    connections.close_all()


def row(name: str, results: list[dict]) -> Row:
    waits = [wait for result in results for wait in result["waits"]]
    return {
        "name": f"{WRITERS} writers {name}",
        "commits/s": round(len(waits) / SECONDS),
        **percentiles(waits),
        "errors": sum(result["errors"] for result in results),
        "purge s": "",
    }
