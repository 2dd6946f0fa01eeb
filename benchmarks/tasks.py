"""What do tasks cost to enqueue, alone and in bulk, and to claim beside 250,000 finished ones?"""

import os

from django.db import connection, transaction

from benchmarks.handlers import nothing
from benchmarks.measure import Figure, as_rows, figure, timed
from django_mqlite import timing
from django_mqlite.message import TASK
from django_mqlite.models import Message, Queue
from django_mqlite.task_backend import Draft

FINISHED = 250_000
READY = 10
ROUNDS = 300
MANY = 1_000

FILL = """
    INSERT INTO mqlite_messages (queue, state, visible_at, enqueued_at, message_id, subject,
                                 content_type, properties, body, result, delivery_count,
                                 locked_by, finished_at, kept_until)
    WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < %(count)s)
    SELECT 'default', 'completed', %(now)s, %(now)s, lower(hex(randomblob(16))), %(path)s,
           %(task)s, '{"backend": "default"}', CAST('{"args":[],"kwargs":{}}' AS BLOB), 'null', 1,
           'host:1:ab', %(now)s, %(now)s + 604800000
      FROM n
"""


def run() -> list[dict[str, object]]:
    Queue.objects.create_queue("default")
    figures = [*enqueues(), *measure("an empty table")]
    fill()
    return as_rows([*figures, *measure(f"{FINISHED:,} finished tasks")])


def enqueues() -> list[Figure]:
    ones = [timed(nothing.enqueue)[0] for _ in range(ROUNDS)]
    drafts = [Draft() for _ in range(MANY)]
    many = [timed(lambda: nothing.enqueue_many(drafts))[0] / MANY for _ in range(5)]
    plain = [timed(lambda: Message.objects.enqueue("default", b""))[0] for _ in range(ROUNDS)]
    Message.objects.all().delete()
    return [
        figure("enqueue a message", plain),
        figure("enqueue a task", ones),
        figure(f"enqueue_many() of {MANY:,} tasks: each", many),
    ]


def fill() -> None:
    values = {
        "now": timing.now_ms(),
        "count": FINISHED,
        "task": TASK,
        "path": nothing.module_path,
    }
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(FILL, values)
    with connection.cursor() as cursor:
        cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    os.sync()  # keep the writes of the setup out of the measurement


def measure(label: str) -> list[Figure]:
    """Claim one of ten ready tasks and return it to the queue after each round."""
    results = nothing.using(max_attempts=ROUNDS).enqueue_many([Draft() for _ in range(READY)])
    claims, lookups = [], []
    for number in range(ROUNDS):
        spent, (message,) = timed(lambda: Message.objects.claim("default"))
        claims.append(spent)
        message.abandon(delay=0)
        id = results[number % READY].id
        lookups.append(timed(lambda id=id: nothing.get_result(id))[0])
    Message.objects.filter(state="active").delete()
    return [
        figure(f"{label}: claim 1 of {READY} ready tasks", claims),
        figure(f"{label}: get_result()", lookups),
    ]
