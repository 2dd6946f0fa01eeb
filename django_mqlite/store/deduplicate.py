"""The duplicate-detection window: the same message sent twice is stored once."""

from hashlib import sha256

from ..content import TASK
from ..exceptions import DuplicateConflict
from ..types import NewMessage
from .statement import Connection, Statement, execute, fetch_one

# A key whose window is over is as good as none.
KNOWN_KEY = Statement(
    "known_key",
    """
    SELECT message, data_sha256 FROM mqlite_dedup
     WHERE queue = %(queue)s AND key = %(key)s AND expires_at > %(now)s
    """,
)


def original_of(connection: Connection, message: NewMessage, *, now: int) -> int | None:
    """The id of the message this one repeats, or None for a new one.

    Raises DuplicateConflict where the key has been used with other data. The window outlives the
    message, so the id may be of one that is long done.
    """
    row = fetch_one(connection, KNOWN_KEY, queue=message.queue, key=_key(message), now=now)
    if row is None:
        return None
    original, data_sha256 = row
    if data_sha256 != _data_sha256(message):
        raise DuplicateConflict(message.queue, message.message_id, original)
    return int(original)


REMEMBER_KEY = Statement(
    "remember_key",
    """
    INSERT INTO mqlite_dedup (queue, key, data_sha256, message, expires_at)
    SELECT name, %(key)s, %(data_sha256)s, %(id)s, %(now)s + dedup_window_ms
      FROM mqlite_queues
     WHERE name = %(queue)s
    ON CONFLICT (queue, key) DO UPDATE
       SET data_sha256 = excluded.data_sha256, message = excluded.message,
           expires_at = excluded.expires_at
    """,
)


def remember_key(connection: Connection, message: NewMessage, id: int, *, now: int) -> None:
    """Open the window of a message that has just been stored under `id`."""
    execute(
        connection,
        REMEMBER_KEY,
        queue=message.queue,
        key=_key(message),
        data_sha256=_data_sha256(message),
        id=id,
        now=now,
    )


def _key(message: NewMessage) -> str:
    """The prefix keeps a message id that looks like a hash apart from the hash."""
    return f"id:{message.message_id}" if message.message_id else f"data:{_data_sha256(message)}"


def _data_sha256(message: NewMessage) -> str:
    """The hash of the body and its content type: 1 and "1" have the same bytes.

    The function that a task calls is a part of the call, and stands in the subject.
    """
    function = message.subject if message.content_type == TASK else None
    head = f"{message.content_type}\0{function or ''}\0"
    return sha256(head.encode() + message.body).hexdigest()


# Served by mqlite_dedup_expiry (expires_at).
PRUNE_KEYS = Statement(
    "prune_keys",
    """
    DELETE FROM mqlite_dedup
     WHERE (queue, key) IN (SELECT queue, key FROM mqlite_dedup
                             WHERE expires_at <= %(now)s
                             LIMIT %(limit)s)
    """,
)


def prune_keys(connection: Connection, *, now: int, limit: int) -> int:
    """Forget at most `limit` keys whose window is over."""
    return execute(connection, PRUNE_KEYS, now=now, limit=limit)
