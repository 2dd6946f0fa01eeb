"""A file beside the database whose times are touched after a commit, so that workers need not poll.

Never the database file itself: closing any descriptor of it would drop the process's locks. A
doorbell that is missing or cannot be touched costs latency only; a slow poll stands behind it.
"""

import contextlib
import os
from functools import lru_cache
from pathlib import Path

from django.db import connections


def database_path(using: str) -> Path | None:
    """The database's file; None for one that is not a file."""
    return _path(str(connections[using].settings_dict["NAME"]))


@lru_cache(maxsize=16)  # of a process's few databases: taking a path apart costs more than ringing
def _path(name: str) -> Path | None:
    if not name or ":memory:" in name or name.startswith("file:"):
        return None
    return Path(name)


def doorbell_path(using: str) -> Path | None:
    """Where the doorbell of this database hangs; None for a database that is not a file."""
    return _beside(str(connections[using].settings_dict["NAME"]))


@lru_cache(maxsize=16)
def _beside(name: str) -> Path | None:
    path = _path(name)
    return None if path is None else path.with_name(f"{path.name}-doorbell")


def ring(using: str) -> None:
    """Wake the workers that listen; no listener has made the file if there is none."""
    path = doorbell_path(using)
    if path is not None:
        with contextlib.suppress(OSError):
            os.utime(path)
