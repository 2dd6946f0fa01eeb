"""The access keys of the HTTP broker: their digests, never their secrets."""

from .base import Statement

ADD_KEY = Statement(
    """
    INSERT INTO mqlite_access_keys (name, digest, rights, created_at, expires_at)
    VALUES (%(name)s, %(digest)s, %(rights)s, %(now)s, %(expires_at)s)
    ON CONFLICT (name) DO NOTHING
    """,
)

# At most one write per interval, however many processes use the key at the same time.
RECORD_USE = Statement(
    """
    UPDATE mqlite_access_keys SET last_used_at = %(now)s
     WHERE digest = %(digest)s AND last_used_at <= %(now)s - %(interval)s
    """,
)

REVOKE = Statement(
    """
    UPDATE mqlite_access_keys SET revoked_at = %(now)s
     WHERE name = %(name)s AND revoked_at = 0
    """,
)

KEY_NAMES = Statement("SELECT name FROM mqlite_access_keys ORDER BY name")
