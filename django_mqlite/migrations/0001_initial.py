"""The eight tables in raw SQL, because Django cannot create STRICT tables and their triggers.

A later migration must never let Django rebuild one of these tables (its copy would not be STRICT
and would lose the triggers): add columns with `ALTER TABLE … ADD COLUMN` in raw SQL. The golden
schema test fails otherwise.

Times are epoch milliseconds from 0 to the end of the year 9999 (253402300799999), the last one
that a Python datetime can hold.
"""

from typing import Any

from django.db import migrations

from ._0001_state import STATE

# `rate_tokens` counts units of 1 / rate_period_ms of a token, so that each millisecond refills the
# bucket by exactly rate_count units. It is the level at the time `rate_updated_at`; 0 and 0 are a
# bucket that has been refilled since.
QUEUES = """
CREATE TABLE mqlite_queues (
    name                  TEXT    PRIMARY KEY,
    kind                  TEXT    NOT NULL DEFAULT 'queue'
                                  CHECK (kind IN ('queue', 'subscription')),
    ordering_mode         TEXT    NOT NULL DEFAULT 'standard'
                                  CHECK (ordering_mode IN
                                         ('standard', 'group_fifo', 'strict_fifo')),
    lock_duration_ms      INTEGER NOT NULL DEFAULT 30000 CHECK (lock_duration_ms > 0),
    max_delivery_count    INTEGER NOT NULL DEFAULT 10    CHECK (max_delivery_count > 0),
    backoff_base_ms       INTEGER NOT NULL DEFAULT 1000    CHECK (backoff_base_ms >= 0),
    backoff_max_ms        INTEGER NOT NULL DEFAULT 3600000 CHECK (backoff_max_ms >= 0),
    default_ttl_ms        INTEGER NOT NULL DEFAULT 0 CHECK (default_ttl_ms >= 0),
    dead_letter_on_expire INTEGER NOT NULL DEFAULT 1 CHECK (dead_letter_on_expire IN (0, 1)),
    dedup_window_ms       INTEGER NOT NULL DEFAULT 0 CHECK (dedup_window_ms >= 0),
    retain_completed_ms   INTEGER NOT NULL DEFAULT 0 CHECK (retain_completed_ms >= 0),
    dlq_max_age_ms        INTEGER NOT NULL DEFAULT 0 CHECK (dlq_max_age_ms >= -1),
    dlq_max_count         INTEGER NOT NULL DEFAULT 0 CHECK (dlq_max_count >= -1),
    dlq_max_bytes         INTEGER NOT NULL DEFAULT 0 CHECK (dlq_max_bytes >= -1),
    max_in_flight         INTEGER NOT NULL DEFAULT 0 CHECK (max_in_flight >= 0),
    rate_count            INTEGER NOT NULL DEFAULT 0 CHECK (rate_count BETWEEN 0 AND 1000000),
    rate_period_ms        INTEGER NOT NULL DEFAULT 0
                                  CHECK (rate_period_ms BETWEEN 0 AND 31622400000),
    rate_tokens           INTEGER NOT NULL DEFAULT 0 CHECK (rate_tokens >= 0),
    rate_updated_at       INTEGER NOT NULL DEFAULT 0,
    paused                INTEGER NOT NULL DEFAULT 0 CHECK (paused IN (0, 1)),
    created_at            INTEGER NOT NULL,
    updated_at            INTEGER NOT NULL,
    CHECK ((rate_count = 0) = (rate_period_ms = 0)),
    CHECK (rate_updated_at BETWEEN 0 AND 253402300799999),
    CHECK (created_at BETWEEN 0 AND 253402300799999),
    CHECK (updated_at BETWEEN 0 AND 253402300799999)
) STRICT
"""

SUBSCRIPTIONS = """
CREATE TABLE mqlite_subscriptions (
    subscription TEXT    PRIMARY KEY REFERENCES mqlite_queues (name) ON DELETE CASCADE,
    topic        TEXT    NOT NULL,
    filter       TEXT    NOT NULL DEFAULT '',
    expression   TEXT    NOT NULL DEFAULT '',
    created_at   INTEGER NOT NULL CHECK (created_at BETWEEN 0 AND 253402300799999)
) STRICT
"""

# `error_class` is the class of the last recorded failure, without its module. SQLite cannot split a
# path: rtrim() returns the part up to the last dot, and replace() removes that part.
LAST_CLASS = "json_extract(errors, '$[#-1].class')"
MODULE = f"rtrim({LAST_CLASS}, replace({LAST_CLASS}, '.', ''))"
ERROR_CLASS = f"nullif(replace({LAST_CLASS}, {MODULE}, ''), '')"

# AUTOINCREMENT: ids are never reused, so an old reference cannot point to a new message.
#
# `line` names the ordered line of the message: its group, '' in a strict_fifo queue (one line for
# the whole queue), NULL for no order. `blocked` is 1 behind another unfinished message of the line.
# The triggers keep exactly one unblocked message, the head, per line, and a unique index makes a
# second one impossible. A claim therefore reads only heads, however long the lines are. Searching
# for earlier messages at claim time would read every message of a blocked group.
MESSAGES = f"""
CREATE TABLE mqlite_messages (
    id                      INTEGER PRIMARY KEY AUTOINCREMENT,
    queue                   TEXT    NOT NULL REFERENCES mqlite_queues (name) ON DELETE CASCADE,
    state                   TEXT    NOT NULL DEFAULT 'active' CHECK (state IN
                                    ('active', 'locked', 'deferred', 'scheduled',
                                     'completed', 'dead_lettered')),
    priority                INTEGER NOT NULL DEFAULT 0,
    line                    TEXT,
    blocked                 INTEGER NOT NULL DEFAULT 0 CHECK (blocked IN (0, 1)),
    visible_at              INTEGER NOT NULL DEFAULT 0,
    enqueued_at             INTEGER NOT NULL,
    expires_at              INTEGER NOT NULL DEFAULT 0,
    locked_at               INTEGER NOT NULL DEFAULT 0,
    locked_until            INTEGER NOT NULL DEFAULT 0,
    lock_token              TEXT,
    locked_by               TEXT,
    delivery_count          INTEGER NOT NULL DEFAULT 0,
    max_delivery_count      INTEGER NOT NULL DEFAULT 0 CHECK (max_delivery_count >= 0),
    message_id              TEXT,
    unique_key              TEXT,
    correlation_id          TEXT,
    reply_to                TEXT,
    group_id                TEXT,
    subject                 TEXT,
    content_type            TEXT,
    properties              TEXT    CHECK (properties IS NULL OR json_valid(properties)),
    body                    BLOB    NOT NULL,
    errors                  TEXT    CHECK (errors IS NULL OR json_valid(errors)),
    result                  TEXT    CHECK (result IS NULL OR json_valid(result)),
    finished_at             INTEGER NOT NULL DEFAULT 0,
    dead_letter_reason      TEXT,
    dead_letter_description TEXT,
    interruptions           INTEGER NOT NULL DEFAULT 0,
    uncounted_retries       INTEGER NOT NULL DEFAULT 0,
    progress                TEXT    CHECK (progress IS NULL OR json_valid(progress)),
    kept_until              INTEGER NOT NULL DEFAULT 0,
    error_class             TEXT    GENERATED ALWAYS AS
                                    (CASE WHEN json_valid(errors) THEN {ERROR_CLASS} END) STORED,
    CHECK (visible_at BETWEEN 0 AND 253402300799999),
    CHECK (enqueued_at BETWEEN 0 AND 253402300799999),
    CHECK (expires_at BETWEEN 0 AND 253402300799999),
    CHECK (locked_at BETWEEN 0 AND 253402300799999),
    CHECK (locked_until BETWEEN 0 AND 253402300799999),
    CHECK (finished_at BETWEEN 0 AND 253402300799999),
    CHECK (kept_until BETWEEN 0 AND 253402300799999),
    CHECK ((state = 'locked') = (lock_token IS NOT NULL)),
    CHECK (blocked = 0 OR (line IS NOT NULL AND
                           state IN ('active', 'locked', 'deferred', 'scheduled')))
) STRICT
"""

DEDUP = """
CREATE TABLE mqlite_dedup (
    queue       TEXT    NOT NULL REFERENCES mqlite_queues (name) ON DELETE CASCADE,
    key         TEXT    NOT NULL,
    data_sha256 TEXT    NOT NULL,
    message     INTEGER NOT NULL,
    expires_at  INTEGER NOT NULL CHECK (expires_at BETWEEN 0 AND 253402300799999),
    PRIMARY KEY (queue, key)
) STRICT, WITHOUT ROWID
"""

# The message id comes first: inserts by random token would write to pages all over the file.
RECEIPTS = """
CREATE TABLE mqlite_settlement_receipts (
    message    INTEGER NOT NULL,
    lock_token TEXT    NOT NULL,
    queue      TEXT    NOT NULL,
    verb       TEXT    NOT NULL CHECK (verb IN ('complete', 'abandon', 'reject', 'defer')),
    arguments  TEXT    NOT NULL,
    expires_at INTEGER NOT NULL CHECK (expires_at BETWEEN 0 AND 253402300799999),
    PRIMARY KEY (message, lock_token)
) STRICT, WITHOUT ROWID
"""

ATTEMPTS = """
CREATE TABLE mqlite_receive_attempts (
    queue      TEXT    NOT NULL REFERENCES mqlite_queues (name) ON DELETE CASCADE,
    attempt_id TEXT    NOT NULL,
    leases     TEXT    NOT NULL,
    deleted    TEXT,
    expires_at INTEGER NOT NULL CHECK (expires_at BETWEEN 0 AND 253402300799999),
    PRIMARY KEY (queue, attempt_id)
) STRICT, WITHOUT ROWID
"""

META = """
CREATE TABLE mqlite_meta (
    key        TEXT    PRIMARY KEY,
    value      TEXT    NOT NULL,
    updated_at INTEGER NOT NULL CHECK (updated_at BETWEEN 0 AND 253402300799999)
) STRICT
"""

ACCESS_KEYS = """
CREATE TABLE mqlite_access_keys (
    name         TEXT    PRIMARY KEY,
    digest       TEXT    NOT NULL UNIQUE CHECK (length(digest) = 64),
    rights       TEXT    NOT NULL DEFAULT '{}',
    created_at   INTEGER NOT NULL,
    expires_at   INTEGER NOT NULL DEFAULT 0,
    last_used_at INTEGER NOT NULL DEFAULT 0,
    revoked_at   INTEGER NOT NULL DEFAULT 0,
    CHECK (created_at BETWEEN 0 AND 253402300799999),
    CHECK (expires_at BETWEEN 0 AND 253402300799999),
    CHECK (last_used_at BETWEEN 0 AND 253402300799999),
    CHECK (revoked_at BETWEEN 0 AND 253402300799999)
) STRICT
"""

# One partial index per query, so that a claim never reads finished or deferred rows.
#
# Indexes for counts and lists end with `state`. Without it SQLite reads the state from the row,
# although the index condition implies it, and counting a million rows takes three times as long.
INDEXES = [
    # claim; depth of the active backlog
    """
    CREATE INDEX mqlite_messages_active ON mqlite_messages (queue, blocked, priority DESC, id,
                                                            state, visible_at)
     WHERE state = 'active'
    """,
    # expired leases; messages in flight
    """
    CREATE INDEX mqlite_messages_locked ON mqlite_messages (queue, locked_until, id, state)
     WHERE state = 'locked'
    """,
    # due schedules
    """
    CREATE INDEX mqlite_messages_scheduled ON mqlite_messages (queue, visible_at, id, state,
                                                               delivery_count)
     WHERE state = 'scheduled'
    """,
    # deferred messages
    """
    CREATE INDEX mqlite_messages_deferred ON mqlite_messages (queue, id, state)
     WHERE state = 'deferred'
    """,
    # lists, redrive and retention of dead letters, oldest death first; a filter by reason or error
    # class reads only the index
    """
    CREATE INDEX mqlite_messages_dead ON mqlite_messages (queue, finished_at, id, state,
                                                          dead_letter_reason, error_class)
     WHERE state = 'dead_lettered'
    """,
    # the latest deaths of all queues
    """
    CREATE INDEX mqlite_messages_died ON mqlite_messages (finished_at, id, state,
                                                          dead_letter_reason, error_class)
     WHERE state = 'dead_lettered'
    """,
    # number and age of completed messages
    """
    CREATE INDEX mqlite_messages_completed ON mqlite_messages (queue, finished_at, id, state)
     WHERE state = 'completed'
    """,
    # retention of completed messages, each with its own time
    """
    CREATE INDEX mqlite_messages_kept ON mqlite_messages (kept_until)
     WHERE state = 'completed'
    """,
    # time to live; a locked message expires only after its lease
    """
    CREATE INDEX mqlite_messages_expiring ON mqlite_messages (expires_at)
     WHERE expires_at > 0 AND state IN ('active', 'deferred', 'scheduled')
    """,
    # the head of each line; a second one fails the write
    """
    CREATE UNIQUE INDEX mqlite_messages_head ON mqlite_messages (queue, line)
     WHERE line IS NOT NULL AND blocked = 0
       AND state IN ('active', 'locked', 'deferred', 'scheduled')
    """,
    # the unfinished message that has a unique key; a second one fails the write
    """
    CREATE UNIQUE INDEX mqlite_messages_unique_key ON mqlite_messages (queue, unique_key)
     WHERE unique_key IS NOT NULL AND state IN ('active', 'locked', 'deferred', 'scheduled')
    """,
    # next message of a line
    """
    CREATE INDEX mqlite_messages_waiting ON mqlite_messages (queue, line, id)
     WHERE blocked = 1
    """,
    # lookup by message id
    """
    CREATE INDEX mqlite_messages_message_id ON mqlite_messages (message_id)
     WHERE message_id IS NOT NULL
    """,
    # search; written only for messages with a value, once at insert and once at delete
    """
    CREATE INDEX mqlite_messages_correlation_id ON mqlite_messages (correlation_id)
     WHERE correlation_id IS NOT NULL
    """,
    """
    CREATE INDEX mqlite_messages_group_id ON mqlite_messages (group_id)
     WHERE group_id IS NOT NULL
    """,
    """
    CREATE INDEX mqlite_messages_subject ON mqlite_messages (subject)
     WHERE subject IS NOT NULL
    """,
    "CREATE INDEX mqlite_subscriptions_topic ON mqlite_subscriptions (topic, subscription)",
    "CREATE INDEX mqlite_dedup_expiry ON mqlite_dedup (expires_at)",
    "CREATE INDEX mqlite_receipts_expiry ON mqlite_settlement_receipts (expires_at)",
    "CREATE INDEX mqlite_attempts_expiry ON mqlite_receive_attempts (expires_at)",
]

TRIGGERS = [
    # A message joins its line blocked; it is the head if the line has none.
    """
    CREATE TRIGGER mqlite_line_join AFTER INSERT ON mqlite_messages
    WHEN NEW.blocked = 1
    BEGIN
        UPDATE mqlite_messages SET blocked = 0
         WHERE id = NEW.id
           AND NOT EXISTS (SELECT 1 FROM mqlite_messages
                            WHERE queue = NEW.queue AND line = NEW.line AND blocked = 0
                              AND state IN ('active', 'locked', 'deferred', 'scheduled'));
    END
    """,
    # When the head is deleted, the next message of the line becomes the head.
    """
    CREATE TRIGGER mqlite_line_leave AFTER DELETE ON mqlite_messages
    WHEN OLD.line IS NOT NULL AND OLD.blocked = 0
         AND OLD.state IN ('active', 'locked', 'deferred', 'scheduled')
    BEGIN
        UPDATE mqlite_messages SET blocked = 0
         WHERE id = (SELECT min(id) FROM mqlite_messages
                      WHERE queue = OLD.queue AND line = OLD.line AND blocked = 1);
    END
    """,
    # The same when the head is kept as a finished row.
    """
    CREATE TRIGGER mqlite_line_finish AFTER UPDATE OF state ON mqlite_messages
    WHEN OLD.line IS NOT NULL AND OLD.blocked = 0
         AND OLD.state IN ('active', 'locked', 'deferred', 'scheduled')
         AND NEW.state IN ('completed', 'dead_lettered')
    BEGIN
        UPDATE mqlite_messages SET blocked = 0
         WHERE id = (SELECT min(id) FROM mqlite_messages
                      WHERE queue = OLD.queue AND line = OLD.line AND blocked = 1);
    END
    """,
    # The head of a line is its first message unless a later one is locked or deferred. A redriven
    # dead letter therefore replaces a later head that is neither, and a head that returns from a
    # failed delivery, or that was deferred and is activated, waits behind an earlier dead letter
    # that was redriven in the meantime.
    """
    CREATE TRIGGER mqlite_line_return AFTER UPDATE OF state ON mqlite_messages
    WHEN NEW.line IS NOT NULL
         AND ((NEW.blocked = 1 AND OLD.state IN ('completed', 'dead_lettered'))
              OR (NEW.blocked = 0 AND OLD.state IN ('locked', 'deferred')
                  AND NEW.state IN ('active', 'scheduled')))
    BEGIN
        UPDATE mqlite_messages SET blocked = 1
         WHERE queue = NEW.queue AND line = NEW.line AND blocked = 0
           AND state IN ('active', 'locked', 'deferred', 'scheduled')
           AND state IN ('active', 'scheduled')
           AND id > (SELECT min(id) FROM mqlite_messages
                      WHERE queue = NEW.queue AND line = NEW.line AND blocked = 1);
        UPDATE mqlite_messages SET blocked = 0
         WHERE id = (SELECT min(id) FROM mqlite_messages
                      WHERE queue = NEW.queue AND line = NEW.line AND blocked = 1)
           AND NOT EXISTS (SELECT 1 FROM mqlite_messages
                            WHERE queue = NEW.queue AND line = NEW.line AND blocked = 0
                              AND state IN ('active', 'locked', 'deferred', 'scheduled'));
    END
    """,
]

TABLES = [QUEUES, SUBSCRIPTIONS, MESSAGES, DEDUP, RECEIPTS, ATTEMPTS, META, ACCESS_KEYS]

DROP_TABLES: Any = [
    "DROP TABLE mqlite_access_keys",
    "DROP TABLE mqlite_meta",
    "DROP TABLE mqlite_receive_attempts",
    "DROP TABLE mqlite_settlement_receipts",
    "DROP TABLE mqlite_dedup",
    "DROP TABLE mqlite_messages",
    "DROP TABLE mqlite_subscriptions",
    "DROP TABLE mqlite_queues",
]


class Migration(migrations.Migration):
    initial = True
    dependencies = []
    operations = [
        migrations.RunSQL(
            sql=[*TABLES, *INDEXES, *TRIGGERS],
            reverse_sql=DROP_TABLES,
            state_operations=STATE,
        ),
    ]
