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
) STRICT;

CREATE TABLE mqlite_dedup (
    queue       TEXT    NOT NULL REFERENCES mqlite_queues (name) ON DELETE CASCADE,
    key         TEXT    NOT NULL,
    data_sha256 TEXT    NOT NULL,
    message     INTEGER NOT NULL,
    expires_at  INTEGER NOT NULL CHECK (expires_at BETWEEN 0 AND 253402300799999),
    PRIMARY KEY (queue, key)
) STRICT, WITHOUT ROWID;

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
                                    (CASE WHEN json_valid(errors) THEN nullif(replace(json_extract(errors, '$[#-1].class'), rtrim(json_extract(errors, '$[#-1].class'), replace(json_extract(errors, '$[#-1].class'), '.', '')), ''), '') END) STORED,
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
) STRICT;

CREATE TABLE mqlite_meta (
    key        TEXT    PRIMARY KEY,
    value      TEXT    NOT NULL,
    updated_at INTEGER NOT NULL CHECK (updated_at BETWEEN 0 AND 253402300799999)
) STRICT;

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
) STRICT;

CREATE TABLE mqlite_receive_attempts (
    queue      TEXT    NOT NULL REFERENCES mqlite_queues (name) ON DELETE CASCADE,
    attempt_id TEXT    NOT NULL,
    leases     TEXT    NOT NULL,
    deleted    TEXT,
    expires_at INTEGER NOT NULL CHECK (expires_at BETWEEN 0 AND 253402300799999),
    PRIMARY KEY (queue, attempt_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE mqlite_settlement_receipts (
    message    INTEGER NOT NULL,
    lock_token TEXT    NOT NULL,
    queue      TEXT    NOT NULL,
    verb       TEXT    NOT NULL CHECK (verb IN ('complete', 'abandon', 'reject', 'defer')),
    arguments  TEXT    NOT NULL,
    expires_at INTEGER NOT NULL CHECK (expires_at BETWEEN 0 AND 253402300799999),
    PRIMARY KEY (message, lock_token)
) STRICT, WITHOUT ROWID;

CREATE TABLE mqlite_subscriptions (
    subscription TEXT    PRIMARY KEY REFERENCES mqlite_queues (name) ON DELETE CASCADE,
    topic        TEXT    NOT NULL,
    filter       TEXT    NOT NULL DEFAULT '',
    expression   TEXT    NOT NULL DEFAULT '',
    created_at   INTEGER NOT NULL CHECK (created_at BETWEEN 0 AND 253402300799999)
) STRICT;

CREATE INDEX mqlite_dedup_expiry ON mqlite_dedup (expires_at);

CREATE INDEX mqlite_messages_active ON mqlite_messages (queue, blocked, priority DESC, id,
                                                            state, visible_at)
     WHERE state = 'active';

CREATE INDEX mqlite_messages_completed ON mqlite_messages (queue, finished_at, id, state)
     WHERE state = 'completed';

CREATE INDEX mqlite_messages_correlation_id ON mqlite_messages (correlation_id)
     WHERE correlation_id IS NOT NULL;

CREATE INDEX mqlite_messages_dead ON mqlite_messages (queue, finished_at, id, state,
                                                          dead_letter_reason, error_class)
     WHERE state = 'dead_lettered';

CREATE INDEX mqlite_messages_deferred ON mqlite_messages (queue, id, state)
     WHERE state = 'deferred';

CREATE INDEX mqlite_messages_died ON mqlite_messages (finished_at, id, state,
                                                          dead_letter_reason, error_class)
     WHERE state = 'dead_lettered';

CREATE INDEX mqlite_messages_expiring ON mqlite_messages (expires_at)
     WHERE expires_at > 0 AND state IN ('active', 'deferred', 'scheduled');

CREATE INDEX mqlite_messages_group_id ON mqlite_messages (group_id)
     WHERE group_id IS NOT NULL;

CREATE UNIQUE INDEX mqlite_messages_head ON mqlite_messages (queue, line)
     WHERE line IS NOT NULL AND blocked = 0
       AND state IN ('active', 'locked', 'deferred', 'scheduled');

CREATE INDEX mqlite_messages_kept ON mqlite_messages (kept_until)
     WHERE state = 'completed';

CREATE INDEX mqlite_messages_locked ON mqlite_messages (queue, locked_until, id, state)
     WHERE state = 'locked';

CREATE INDEX mqlite_messages_message_id ON mqlite_messages (message_id)
     WHERE message_id IS NOT NULL;

CREATE INDEX mqlite_messages_scheduled ON mqlite_messages (queue, visible_at, id, state,
                                                               delivery_count)
     WHERE state = 'scheduled';

CREATE INDEX mqlite_messages_subject ON mqlite_messages (subject)
     WHERE subject IS NOT NULL;

CREATE UNIQUE INDEX mqlite_messages_unique_key ON mqlite_messages (queue, unique_key)
     WHERE unique_key IS NOT NULL AND state IN ('active', 'locked', 'deferred', 'scheduled');

CREATE INDEX mqlite_messages_waiting ON mqlite_messages (queue, line, id)
     WHERE blocked = 1;

CREATE INDEX mqlite_attempts_expiry ON mqlite_receive_attempts (expires_at);

CREATE INDEX mqlite_receipts_expiry ON mqlite_settlement_receipts (expires_at);

CREATE INDEX mqlite_subscriptions_topic ON mqlite_subscriptions (topic, subscription);

CREATE TRIGGER mqlite_line_finish AFTER UPDATE OF state ON mqlite_messages
    WHEN OLD.line IS NOT NULL AND OLD.blocked = 0
         AND OLD.state IN ('active', 'locked', 'deferred', 'scheduled')
         AND NEW.state IN ('completed', 'dead_lettered')
    BEGIN
        UPDATE mqlite_messages SET blocked = 0
         WHERE id = (SELECT min(id) FROM mqlite_messages
                      WHERE queue = OLD.queue AND line = OLD.line AND blocked = 1);
    END;

CREATE TRIGGER mqlite_line_join AFTER INSERT ON mqlite_messages
    WHEN NEW.blocked = 1
    BEGIN
        UPDATE mqlite_messages SET blocked = 0
         WHERE id = NEW.id
           AND NOT EXISTS (SELECT 1 FROM mqlite_messages
                            WHERE queue = NEW.queue AND line = NEW.line AND blocked = 0
                              AND state IN ('active', 'locked', 'deferred', 'scheduled'));
    END;

CREATE TRIGGER mqlite_line_leave AFTER DELETE ON mqlite_messages
    WHEN OLD.line IS NOT NULL AND OLD.blocked = 0
         AND OLD.state IN ('active', 'locked', 'deferred', 'scheduled')
    BEGIN
        UPDATE mqlite_messages SET blocked = 0
         WHERE id = (SELECT min(id) FROM mqlite_messages
                      WHERE queue = OLD.queue AND line = OLD.line AND blocked = 1);
    END;

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
    END;
