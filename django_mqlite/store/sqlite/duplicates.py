"""Find duplicates by deduplication key, and unfinished messages by unique key."""

import json
from collections.abc import Sequence
from hashlib import sha256

from ...exceptions import DuplicateConflict
from ...message import TASK
from ...types import NewMessage
from .base import M_COLUMNS, UNFINISHED, Connection, MessageRow, Statement

# Expired keys are ignored; the reaper deletes them later. So are keys of a window that was removed.
KNOWN_KEY = Statement(
    """
    SELECT message, data_sha256 FROM mqlite_dedup
     WHERE queue = %(queue)s AND key = %(key)s AND expires_at > %(now)s
       AND EXISTS (SELECT 1 FROM mqlite_queues WHERE name = %(queue)s AND dedup_window_ms > 0)
    """,
)


def original_of(connection: Connection, message: NewMessage, *, now: int) -> int | None:
    """Return the id of the message that this one repeats, or None if it is new.

    The original may have been deleted, because the window outlives the message. Raises
    DuplicateConflict if the key was used with different data.
    """
    row = KNOWN_KEY.one(connection, queue=message.queue, key=_key(message), now=now)
    if row is None:
        return None
    original, data_sha256 = row
    if data_sha256 != _data_sha256(message):
        raise DuplicateConflict(message.queue, message.message_id, original)
    return int(original)


REMEMBER_KEY = Statement(
    """
    INSERT INTO mqlite_dedup (queue, key, data_sha256, message, expires_at)
    SELECT name, %(key)s, %(data_sha256)s, %(id)s, %(now)s + dedup_window_ms
      FROM mqlite_queues
     WHERE name = %(queue)s AND dedup_window_ms > 0
    ON CONFLICT (queue, key) DO UPDATE
       SET data_sha256 = excluded.data_sha256, message = excluded.message,
           expires_at = excluded.expires_at
    """,
)


def remember_key(connection: Connection, message: NewMessage, id: int, *, now: int) -> None:
    """Start the deduplication window, if the queue has one, of a message stored as `id`."""
    REMEMBER_KEY.run(
        connection,
        queue=message.queue,
        key=_key(message),
        data_sha256=_data_sha256(message),
        id=id,
        now=now,
    )


def _key(message: NewMessage) -> str:
    """Return the deduplication key. The prefix distinguishes a message id from a hash."""
    return f"id:{message.message_id}" if message.message_id else f"data:{_data_sha256(message)}"


def _data_sha256(message: NewMessage) -> str:
    """Return the hash of the body and the content type, because 1 and "1" have the same bytes.

    For a task, the subject is included: it is the path of the function.
    """
    function = message.subject if message.content_type == TASK else None
    head = f"{message.content_type or ''}\0{function or ''}\0"
    return sha256(head.encode() + message.body).hexdigest()


# Served by mqlite_dedup_expiry (expires_at).
PRUNE_KEYS = Statement(
    """
    DELETE FROM mqlite_dedup
     WHERE (queue, key) IN (SELECT queue, key FROM mqlite_dedup
                             WHERE expires_at <= %(now)s
                             LIMIT %(limit)s)
    """,
)


# Served by the unique index mqlite_messages_unique_key (queue, unique_key).
HOLDERS = Statement(
    """
    SELECT """
    + M_COLUMNS
    + """
      FROM json_each(%(keys)s) AS requested
     CROSS JOIN mqlite_messages AS m ON m.queue = %(queue)s AND m.unique_key = requested.value
     WHERE """
    + UNFINISHED,
)


def holders(connection: Connection, queue: str, keys: Sequence[str]) -> list[MessageRow]:
    """Return the unfinished messages of the queue that have these unique keys."""
    rows = HOLDERS.all(connection, queue=queue, keys=json.dumps(list(keys)))
    return list(map(MessageRow._make, rows))
