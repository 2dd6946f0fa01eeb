"""How long does an admin page take with 1,000,000 messages, and how many queries does it run?"""

import os

from django.contrib.auth.models import User
from django.db import connection, transaction
from django.test import Client
from django.test.utils import CaptureQueriesContext

from benchmarks.measure import Figure, figure, timed
from django_mqlite import timing
from django_mqlite.models import Message, Queue

ROWS = 1_000_000
QUEUES = 5
ROUNDS = 20

# Messages in every state but locked, with all searchable columns, in groups of about 1,000.
FILL = """
INSERT INTO mqlite_messages (queue, state, visible_at, enqueued_at, finished_at, delivery_count,
                             message_id, correlation_id, group_id, subject, content_type, body,
                             dead_letter_reason, errors)
SELECT 'queue-' || (value / 5 %% %(queues)s),
       CASE value %% 5 WHEN 0 THEN 'active' WHEN 1 THEN 'scheduled' WHEN 2 THEN 'deferred'
                      WHEN 3 THEN 'dead_lettered' ELSE 'completed' END,
       CASE value %% 5 WHEN 1 THEN %(far)s ELSE %(now)s END, %(now)s,
       CASE WHEN value %% 5 > 2 THEN %(now)s - value ELSE 0 END, value %% 5 / 3,
       'message-' || value, 'trace-' || (value / 3), 'group-' || (value %% 1000),
       'order.' || (value %% 7) || '.' || value, 'application/json',
       CAST('{"note": "' || hex(zeroblob(120)) || '"}' AS BLOB),
       CASE value %% 5 WHEN 3 THEN 'NoStock' END,
       CASE value %% 5 WHEN 3 THEN '[{"class": "ValueError", "message": "no stock"}]' END
  FROM (WITH RECURSIVE n(value) AS (SELECT 0 UNION ALL SELECT value + 1 FROM n LIMIT %(count)s)
        SELECT value FROM n)
"""

MESSAGES, LETTERS = "message/", "deadletter/"
PAGES = {
    "overview": "queue/",
    "overview, refreshed": "queue/overview/",
    "messages": MESSAGES,
    "messages, of a queue": MESSAGES + "?queue=queue-2",
    "messages, active": MESSAGES + "?state=active",
    "messages, completed": MESSAGES + "?state=completed",
    "messages, active of a queue": MESSAGES + "?queue=queue-2&state=active",
    "messages, of a group": MESSAGES + "?group=group-7",
    "messages, by id": MESSAGES + "?q=500000",
    "messages, by message id": MESSAGES + "?q=message-500000",
    "messages, by correlation id": MESSAGES + "?q=trace-100000",
    "messages, by subject": MESSAGES + "?q=order.3",
    "messages, no match": MESSAGES + "?q=nothing",
    "dead letters": LETTERS,
    "dead letters, of a queue": LETTERS + "?queue=queue-2",
    "dead letters, of a reason": LETTERS + "?reason=NoStock",
    "dead letters, of an unused reason": LETTERS + "?reason=Nothing",
    "dead letters, by subject": LETTERS + "?q=order.3",
    "message": MESSAGES + "500000/change/",
}


def run() -> list[dict[str, object]]:
    fill(ROWS)
    client = Client()
    client.force_login(User.objects.create_superuser("admin"))
    return [measure(client, name, f"/admin/django_mqlite/{page}") for name, page in PAGES.items()]


def fill(count: int) -> None:
    for number in range(QUEUES):
        Queue.objects.create_queue(f"queue-{number}", retain_completed=10**8)
    now = timing.now_ms()
    values = {"now": now, "far": now + 10**9, "count": count, "queues": QUEUES}
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(FILL, values)
    with connection.cursor() as cursor:
        cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    os.sync()  # keep the writes of the setup out of the measurement
    if Message.objects.order_by("-pk").first().pk < count:
        raise RuntimeError("not every message was created")


def measure(client: Client, name: str, url: str) -> dict[str, object]:
    samples = [timed(lambda: client.get(url)) for _ in range(ROUNDS)]
    if {response.status_code for _, response in samples} != {200}:
        raise RuntimeError(f"{name}: {samples[0][1].status_code}")
    with CaptureQueriesContext(connection) as queries:
        client.get(url)
    return in_milliseconds(figure(name, [spent for spent, _ in samples]), len(queries))


def in_milliseconds(times: Figure, queries: int) -> dict[str, object]:
    return {
        "name": times.name,
        "queries": queries,
        "median ms": round(times.median / 1000, 1),
        "p90 ms": round(times.p90 / 1000, 1),
        "worst ms": round(times.worst / 1000, 1),
    }
