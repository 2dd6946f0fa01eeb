"""Insert many messages by SQL, for tests of the cost of a verb beside them."""

from django.db import connection

FILL = """
    INSERT INTO mqlite_messages (
        queue, state, visible_at, enqueued_at, locked_at, locked_until, lock_token, locked_by,
        delivery_count, message_id, correlation_id, group_id, subject, content_type, body,
        finished_at, dead_letter_reason)
    SELECT %(queue)s,
           CASE n %% 6 WHEN 0 THEN 'active' WHEN 1 THEN 'scheduled' WHEN 2 THEN 'deferred'
                       WHEN 3 THEN 'dead_lettered' WHEN 4 THEN 'completed' ELSE 'locked' END,
           CASE n %% 6 WHEN 1 THEN %(now)s + 86400000 + n ELSE %(now)s END, %(now)s,
           CASE n %% 6 WHEN 5 THEN %(now)s ELSE 0 END,
           CASE n %% 6 WHEN 5 THEN %(now)s + 86400000 + n ELSE 0 END,
           CASE n %% 6 WHEN 5 THEN 'token' || n END,
           CASE n %% 6 WHEN 5 THEN 'somebody' END,
           CASE n %% 6 WHEN 0 THEN 0 ELSE 1 END,
           'message-' || n, 'correlation-' || n, 'group-' || (n %% 1000), 'order.' || n,
           'application/json', CAST('{"order": ' || n || '}' AS BLOB),
           CASE WHEN n %% 6 IN (3, 4) THEN %(now)s + n ELSE 0 END,
           CASE n %% 6 WHEN 3 THEN CASE n %% 4 WHEN 1 THEN 'Lost' ELSE 'Broken' END END
      FROM (WITH RECURSIVE numbers(n) AS
                (SELECT 0 UNION ALL SELECT n + 1 FROM numbers LIMIT %(count)s)
            SELECT n FROM numbers)
"""


def fill(queue: str, count: int, *, now: int) -> None:
    """Insert messages, a sixth of them in each state."""
    with connection.cursor() as cursor:
        cursor.execute(FILL, {"queue": queue, "count": count, "now": now})
