"""How long do the overview, lists, searches, explain and counts take with a million messages?"""

from collections.abc import Callable

from django.db import connection, transaction

from benchmarks.measure import Figure, as_rows, figure, timed
from django_mqlite import timing
from django_mqlite.models import DeadLetter, Message, Queue

QUEUES = 5
COUNT = 1_000_000
ROUNDS = 20
PAGE = 100

# A fifth each active, scheduled, deferred, dead-lettered and completed, spread over all queues.
FILL = """
INSERT INTO mqlite_messages (queue, state, visible_at, enqueued_at, finished_at, subject,
                             correlation_id, group_id, message_id, dead_letter_reason, body)
SELECT 'queue-' || (n / 5 %% %(queues)s),
       CASE n %% 5 WHEN 0 THEN 'active' WHEN 1 THEN 'scheduled' WHEN 2 THEN 'deferred'
                   WHEN 3 THEN 'dead_lettered' ELSE 'completed' END,
       CASE n %% 5 WHEN 1 THEN %(now)s + 1000000000 + n ELSE %(now)s END, %(now)s,
       CASE WHEN n %% 5 > 2 THEN %(now)s + n ELSE 0 END, 'order.' || n, 'correlation-' || n,
       'group-' || (n %% 10000), 'message-' || n,
       CASE n %% 5 WHEN 3 THEN 'Broken' END, zeroblob(256)
  FROM (WITH RECURSIVE numbers(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM numbers
                                       LIMIT %(count)s)
        SELECT n FROM numbers)
"""


def run() -> list[dict[str, object]]:
    for number in range(QUEUES):
        Queue.objects.create_queue(f"queue-{number}", retain_completed=1_000_000)
    values = {"queues": QUEUES, "count": COUNT, "now": timing.now_ms()}
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(FILL, values)
    return as_rows([measured(name, query) for name, query in QUERIES.items()])


def measured(name: str, query: Callable[[], object]) -> Figure:
    query()
    return figure(name, [timed(query)[0] for _ in range(ROUNDS)])


def page(*, after: str | None = None, **filters: str) -> list[Message]:
    """Read a page as the command and the admin do: the ids, then the rows without bodies."""
    ids = Message.objects.find(limit=PAGE, after=after, **filters).ids
    rows = Message.objects.defer("body", "errors", "properties").in_bulk(ids)
    return [rows[id] for id in ids]


QUERIES: dict[str, Callable[[], object]] = {
    "overview of all queues": Queue.objects.overview,
    "list: all, the newest": page,
    "list: a queue": lambda: page(queue="queue-3"),
    "list: a queue, after 100,000 messages": lambda: page(queue="queue-3", after="3-20000"),
    "list: dead letters": lambda: page(state="dead_lettered"),
    "list: dead letters, after 100,000": lambda: page(state="dead_lettered", after="0-100000"),
    "list: active": lambda: page(state="active"),
    "list: a queue and a state": lambda: page(queue="queue-3", state="completed"),
    "list: a group": lambda: page(group="group-77"),
    "search: sequence number": lambda: page(text="777777"),
    "search: message id": lambda: page(text="message-777777"),
    "search: beginning of the subject": lambda: page(text="order.77"),
    "search: no match": lambda: page(text="nobody"),
    "explain an active message": lambda: Message.objects.explain(1),
    "explain a deleted message": lambda: Message.objects.explain(10**9),
    "count the dead letters of a queue": lambda: DeadLetter.objects.matching("queue-3").count(),
}
