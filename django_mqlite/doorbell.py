"""A file beside the database whose times are touched after a commit, so that workers need not poll.

Never the database file itself: closing any descriptor of it would drop the process's locks. A
doorbell that is missing or cannot be touched costs latency only; a slow poll stands behind it.
"""

import contextlib
import os
from pathlib import Path

from django.db import connections


def database_path(using: str) -> Path | None:
    """The database's file; None for one that is not a file."""
    name = str(connections[using].settings_dict["NAME"])
    if not name or ":memory:" in name or name.startswith("file:"):
        return None
    return Path(name)


def doorbell_path(using: str) -> Path | None:
    """Where the doorbell of this database hangs; None for a database that is not a file."""
    path = database_path(using)
    return None if path is None else path.with_name(f"{path.name}-doorbell")


def ring(using: str) -> None:
    """Wake the workers that listen; no listener has made the file if there is none."""
    path = doorbell_path(using)
    if path is not None:
        with contextlib.suppress(OSError):
            os.utime(path)
