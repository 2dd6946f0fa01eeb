"""A file beside the database, touched after each commit to wake workers.

Never the database file itself: closing any descriptor of it would drop the process's locks. A
doorbell that is missing or cannot be touched costs latency only, because workers also poll slowly.
"""

import contextlib
import os
from functools import lru_cache
from pathlib import Path

from django.db import connections

from .paths import file_of


def database_path(using: str) -> Path | None:
    """Return the path of the database, or None if it is not a file."""
    return _path(str(connections[using].settings_dict["NAME"]))


# Cached, because parsing a path costs more than touching the doorbell, and because a relative path
# must keep its meaning when the process changes its directory.
_path = lru_cache(maxsize=16)(file_of)


def sidecar(path: Path, suffix: str) -> Path:
    """Return the path of a file beside the real database file, as SQLite names its own."""
    real = path.resolve()
    return real.with_name(f"{real.name}{suffix}")


def doorbell_path(using: str) -> Path | None:
    """Return the path of the database's doorbell, or None if the database is not a file."""
    return _beside(str(connections[using].settings_dict["NAME"]))


@lru_cache(maxsize=16)
def _beside(name: str) -> Path | None:
    path = _path(name)
    return None if path is None else sidecar(path, "-doorbell")


def ring_doorbell(using: str) -> None:
    """Wake the workers that wait. The file exists only if a worker has created it."""
    path = doorbell_path(using)
    if path is not None:
        with contextlib.suppress(OSError):
            os.utime(path)
