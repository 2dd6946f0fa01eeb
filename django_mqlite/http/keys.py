"""Who sends a request: root tokens and access keys."""

import hmac
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from django.core.exceptions import ImproperlyConfigured

from ..conf import get_settings
from ..models import AccessKey
from ..types import Right
from ..verbs.keys import known_key

OFF = "off"
"""The value of MQLITE_TOKENS that turns authentication off."""


class Key(Protocol):
    """The rights of whoever sends a request."""

    @property
    def name(self) -> str: ...

    def allows(self, right: Right, name: str | None = None) -> bool:
        """Return whether the key has this right on the queue or topic, or on all of them."""
        ...


@dataclass(frozen=True, slots=True)
class RootKey:
    """Every right, of a root token or of a broker without authentication."""

    name: str = "root"

    def allows(self, right: Right, name: str | None = None) -> bool:
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Keyring:
    """The root tokens, or no authentication if `is_open` is true."""

    using: str
    tokens: tuple[bytes, ...] = ()
    is_open: bool = False

    @property
    def has_keys(self) -> bool:
        """True if there is a token or a valid access key."""
        keys = AccessKey.objects.using(self.using)
        return bool(self.tokens) or any(key.status == "valid" for key in keys.all())

    def known_key(self, authorization: bytes) -> Key | None:
        """Return the key in this header if that needs no query; a root token never does.

        Every token is compared, so that the time does not depend on which one it is.
        """
        if self.is_open:
            return RootKey()
        secret = secret_of(authorization)
        matches = [hmac.compare_digest(secret, token) for token in self.tokens]
        if any(matches):
            return RootKey()
        key: Key | None = known_key(self.using, secret.decode("latin-1"))
        return key

    def stored_key(self, authorization: bytes) -> Key | None:
        """Return the access key in this header from the database, None if it is not valid."""
        keys = AccessKey.objects.db_manager(self.using)
        return keys.authenticate(secret_of(authorization).decode("latin-1"))


def secret_of(authorization: bytes) -> bytes:
    """Return the secret in an Authorization header, with or without `Bearer `."""
    return authorization.removeprefix(b"Bearer ")


def configured_keyring(
    using: str, tokens_file: Path | None = None, *, is_open: bool = False
) -> Keyring:
    """Return the keyring of this database, of the file, and of MQLITE_TOKENS.

    MQLITE_TOKENS is an environment variable, or else MQLITE['TOKENS'] in the settings. Raises
    ImproperlyConfigured if it or the file has no token.
    """
    tokens = _environment_tokens()
    if is_open or tokens is None:
        return Keyring(using=using, is_open=True)
    if tokens_file is not None:
        tokens += _tokens_in(tokens_file)
    return Keyring(using=using, tokens=tokens)


def _environment_tokens() -> tuple[bytes, ...] | None:
    """Return the configured tokens; None if authentication is turned off."""
    raw = os.environ.get("MQLITE_TOKENS")
    if raw is None:
        return _encoded(get_settings().tokens)
    if raw.strip().lower() == OFF:
        return None
    tokens = _encoded(raw.split(","))
    if not tokens:
        raise ImproperlyConfigured(
            "MQLITE_TOKENS is set but has no token: set it to a comma-separated list of tokens, or "
            "to off for no authentication, or unset it."
        )
    return tokens


def _tokens_in(path: Path) -> tuple[bytes, ...]:
    """Return the tokens of a file, one per line; raise ImproperlyConfigured if it has none."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ImproperlyConfigured(f"Could not read the tokens file {path}: {error}.") from error
    tokens = _encoded(lines)
    if not tokens:
        raise ImproperlyConfigured(f"The tokens file {path} has no token; write one on each line.")
    return tokens


def _encoded(tokens: Iterable[str]) -> tuple[bytes, ...]:
    return tuple(token.strip().encode() for token in tokens if token.strip())
