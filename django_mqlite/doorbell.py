"""A file beside the database whose times are touched after a commit, so that workers need not poll.

Never the database file itself: closing any descriptor of it would drop the process's locks. A
doorbell that is missing or cannot be touched costs latency only; a slow poll stands behind it.
"""

import contextlib
import os
from functools import lru_cache
from pathlib import Path

from django.db import connections

from .paths import file_of


def database_path(using: str) -> Path | None:
    """The database's file; None for one that is not a file."""
    return _path(str(connections[using].settings_dict["NAME"]))


# Of a process's few databases: taking a path apart costs more than ringing. Remembered, so that a
# relative one is seen from where the process was when it was first asked for.
_path = lru_cache(maxsize=16)(file_of)


def sidecar(path: Path, suffix: str) -> Path:
    """A file that belongs to the database: beside the real file, like those of SQLite."""
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
    """Wake the workers that listen; no listener has made the file if there is none."""
    path = doorbell_path(using)
    if path is not None:
        with contextlib.suppress(OSError):
            os.utime(path)
