"""Create, check and revoke the access keys of the HTTP broker."""

import hmac
import json
import re
import secrets
from collections.abc import Iterable
from hashlib import sha256
from typing import Any, NamedTuple

from django.db import DatabaseError
from django.views.decorators.debug import sensitive_variables

from .. import timing
from ..arguments import checked_text
from ..exceptions import AccessKeyExists, AccessKeyNotFound
from ..guard import get_logger, safe_repr
from ..names import checked_name
from ..store import sqlite as store
from ..timing import Duration, epoch_ms, milliseconds
from ..transactions import write_transaction
from ..types import RIGHTS
from .base import M, Verbs

logger = get_logger("django_mqlite")

SECRET = re.compile(r"mqk_[0-9a-f]{64}")

PATTERN = re.compile(r"[A-Za-z0-9._*?\[\]!-]{1,128}")
"""A queue name with the wildcards of a shell: `*`, `?`, `[abc]` and `[!abc]`."""

CACHE_MS = 2_000
"""How long a key that was read is used without reading it again."""

USE_INTERVAL_MS = 60_000
"""The minimum time between two writes of `last_used_at`."""

_cache: dict[tuple[str, str], tuple[int, Any]] = {}
"""The keys that were read, by database and digest, with the time at which they were read."""


class NewKey(NamedTuple):
    """An access key that was just created, and its secret, which cannot be read again."""

    key: Any
    secret: str


class KeyVerbs(Verbs[M]):
    """Create, check and revoke access keys."""

    @sensitive_variables()
    def create_key(
        self,
        name: str,
        *,
        send: Iterable[str] = (),
        listen: Iterable[str] = (),
        manage: Iterable[str] = (),
        expires_in: Duration | None = None,
    ) -> NewKey:
        """Create an access key; return it and its secret, which is not stored.

        `send`, `listen` and `manage` are patterns of queue and topic names, such as "orders*". At
        least one is needed, because a key without rights can do nothing. `expires_in`: a timedelta
        or seconds; None means that the key does not expire.

        Raises AccessKeyExists if the name is taken, TypeError or ValueError for an invalid name or
        pattern.
        """
        name = checked_name(name, "access key")
        rights = {
            right: checked_patterns(patterns, right)
            for right, patterns in zip(RIGHTS, (send, listen, manage), strict=True)
        }
        if not any(rights.values()):
            raise ValueError(
                f"Access key {name!r} needs a right: pass queue names or patterns to send, listen "
                "or manage."
            )
        lifetime = (
            expires_in if expires_in is None else milliseconds(expires_in, "expires_in", minimum=1)
        )
        secret = f"mqk_{secrets.token_hex(32)}"
        with write_transaction(self.database) as (connection, now):
            added = store.keys.ADD_KEY.run(
                connection,
                name=name,
                digest=digest_of(secret),
                rights=json.dumps({right: names for right, names in rights.items() if names}),
                expires_at=0 if lifetime is None else now + lifetime,
                now=now,
            )
        if not added:
            raise AccessKeyExists(name)
        return NewKey(self.get(name=name), secret)

    @sensitive_variables()
    def authenticate(self, secret: str) -> M | None:
        """Return the valid access key with this secret; None if there is none.

        A key that was read is used for two seconds without reading it again, so a revocation takes
        effect within that time. Records the use of the key at most once a minute.
        """
        key = self.find_key(secret)
        if key is not None:
            self.record_use(key)
        return key

    @sensitive_variables()
    def find_key(self, secret: str) -> M | None:
        """Return what authenticate() returns, without recording the use. Reads only."""
        if not isinstance(secret, str):
            raise TypeError(f"secret must be a str, not {type(secret).__name__}")
        if not SECRET.fullmatch(secret):
            return None
        digest = digest_of(secret)
        key: Any = cached_key(self.database, digest) or self._read(digest)
        if key is None or not hmac.compare_digest(key.digest, digest) or key.status != "valid":
            return None
        return key  # type: ignore[no-any-return]

    def _read(self, digest: str) -> M | None:
        now = timing.now_ms()
        key = self.using(self.database).filter(digest=digest).first()
        for known in [known for known, (read_at, _) in _cache.items() if not _is_fresh(read_at)]:
            _cache.pop(known, None)
        if key is not None:
            _cache[self.database, digest] = (now, key)
        return key

    def record_use(self, key: Any) -> None:
        """Record the use of the key, unless it was recorded in the last minute.

        A failure is logged and does not matter: a request must not fail because of it.
        """
        now = timing.now_ms()
        last = 0 if key.last_used_at is None else epoch_ms(key.last_used_at)
        if now - last < USE_INTERVAL_MS:
            return
        key.last_used_at = timing.moment(now)  # the instance in the cache: do not try again at once
        try:
            with write_transaction(self.database) as (connection, now):
                store.keys.RECORD_USE.run(
                    connection, digest=key.digest, interval=USE_INTERVAL_MS, now=now
                )
        except DatabaseError as error:
            logger.warning("the use of access key %s was not recorded: %s", key.name, error)

    def revoke(self, name: str) -> bool:
        """End an access key for good; return False if it was already revoked.

        It takes effect within 5 seconds, in every process. Raises AccessKeyNotFound.
        """
        name = checked_text(name, "name")
        with write_transaction(self.database) as (connection, now):
            revoked = store.keys.REVOKE.run(connection, name=name, now=now) > 0
            if not revoked:
                names = [known for (known,) in store.keys.KEY_NAMES.all(connection)]
                if name not in names:
                    raise AccessKeyNotFound(name, names)
        return revoked


def checked_patterns(patterns: Iterable[str], right: str) -> list[str]:
    """Return the patterns, each once; raise TypeError or ValueError for an invalid one."""
    if isinstance(patterns, str | bytes) or not isinstance(patterns, Iterable):
        raise TypeError(f"{right} must be a sequence of patterns, not {safe_repr(patterns)}")
    names = list(dict.fromkeys(patterns))
    for name in names:
        if not isinstance(name, str) or not PATTERN.fullmatch(name):
            raise ValueError(
                f"Invalid pattern {safe_repr(name)} of {right}: use a queue name, in which * means "
                "any characters, ? any one, and [abc] one of these"
            )
    return [str.__str__(name) for name in names]


def digest_of(secret: str) -> str:
    """Return the digest that is stored instead of the secret.

    The secret has 256 random bits, so one round of SHA-256 cannot be reversed by guessing.
    """
    return sha256(secret.encode(errors="surrogatepass")).hexdigest()


def known_key(using: str, secret: str) -> Any:
    """Return the valid access key with this secret if it was read just now; None otherwise."""
    if not SECRET.fullmatch(secret):
        return None
    key = cached_key(using, digest_of(secret))
    return key if key is not None and key.status == "valid" else None


def cached_key(using: str, digest: str) -> Any:
    """Return the key if it was read in the last two seconds; None otherwise."""
    read_at, key = _cache.get((using, digest), (0, None))
    return key if key is not None and _is_fresh(read_at) else None


def _is_fresh(read_at: int) -> bool:
    """A time from the future, which a step of the clock leaves, is not fresh either."""
    return abs(timing.now_ms() - read_at) < CACHE_MS
