"""What does a claim cost beside long lines with deferred heads, in 1, 10 and 10,000 groups?"""

from django.db import connection, transaction

from benchmarks.measure import Figure, as_rows, figure, timed
from django_mqlite.models import Message, Queue

BACKLOG = 50_000
GROUPS = (1, 10, 10_000)
ROUNDS = 300


def run() -> list[dict[str, object]]:
    figures: list[Figure] = []
    for groups in GROUPS:
        for mode in ("group_fifo", "strict_fifo"):
            if mode == "strict_fifo" and groups > 1:
                continue  # a strict queue is one line, regardless of its groups
            figures += measure(mode, groups)
    return as_rows(figures)


def measure(mode: str, groups: int) -> list[Figure]:
    queue = f"{mode}-{groups}"
    Queue.objects.create_queue(queue, ordering_mode=mode)
    enqueue_backlog(queue, groups)
    label = f"{mode}, {groups:,} blocked heads, {BACKLOG:,} behind them"
    block_heads(queue, groups)
    empty = [timed(lambda: expect(Message.objects.claim(queue), 0))[0] for _ in range(ROUNDS)]
    figures = [figure(f"{label}: claim returns nothing", empty)]
    if mode == "group_fifo":
        figures.append(figure(f"{label}: claim the one free head", claim_free_heads(queue)))
    else:
        figures.append(figure(f"{label}: complete, claim the next", complete_and_claim_next(queue)))
    return figures


def enqueue_backlog(queue: str, groups: int) -> None:
    insert = """
        INSERT INTO mqlite_messages (queue, enqueued_at, visible_at, group_id, line, blocked, body)
        SELECT name, 1, 1, 'g' || (value %% %(groups)s),
               CASE ordering_mode WHEN 'strict_fifo' THEN '' ELSE 'g' || (value %% %(groups)s) END,
               1, zeroblob(256)
          FROM (WITH RECURSIVE n(value)
                    AS (SELECT 0 UNION ALL SELECT value + 1 FROM n LIMIT %(count)s)
                SELECT value FROM n)
          JOIN mqlite_queues ON name = %(queue)s
    """
    values = {"queue": queue, "groups": groups, "count": BACKLOG + groups}
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(insert, values)


def block_heads(queue: str, groups: int) -> None:
    """Claim and defer every head, so that all other messages of its line wait."""
    blocked = 0
    while blocked < groups:
        for message in Message.objects.claim(queue, limit=1_000):
            message.defer()
            blocked += 1


def claim_free_heads(queue: str) -> list[float]:
    samples = []
    for number in range(ROUNDS):
        Message.objects.enqueue(queue, b"", group_id=f"free-{number}")
        spent, claimed = timed(lambda: expect(Message.objects.claim(queue), 1))
        samples.append(spent)
        claimed[0].complete()
    return samples


def complete_and_claim_next(queue: str) -> list[float]:
    """Complete the head and claim the next message, with 50,000 waiting behind it."""
    (head,) = Message.objects.filter(queue=queue, state="deferred")
    (held,) = Message.objects.claim_deferred(queue, [head.pk])
    samples = []
    for _ in range(ROUNDS):
        held.complete()
        spent, (held,) = timed(lambda: expect(Message.objects.claim(queue), 1))
        samples.append(spent)
    held.complete()
    return samples


def expect(messages: list[Message], count: int) -> list[Message]:
    if len(messages) != count:
        raise RuntimeError(f"claimed {len(messages)} messages, expected {count}")
    return messages
