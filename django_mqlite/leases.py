"""A lease can be pointed at without telling its secret."""

from hashlib import sha256


def fingerprint(lock_token: str) -> str:
    """What may be shown of a lock token: who has the token can settle, who has this cannot."""
    return sha256(lock_token.encode()).hexdigest()[:32]
