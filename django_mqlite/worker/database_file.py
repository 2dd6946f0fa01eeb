"""Whether the database is still the files that were opened."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread

from django.db import Error, connections

from ..doorbell import database_path, sidecar
from ..guard import get_logger
from ..places import anchored
from ..store.storage import file_facts
from .stop import Stop

logger = get_logger("django_mqlite.worker")

LOOK_EVERY = 1.0
"""Seconds between two looks."""

SIDECARS = ("-wal", "-shm")

Identity = tuple[int, int]


@contextmanager
def watched(using: str, stop: Stop) -> Iterator[None]:
    """Leave the process at once when another file or none has taken the place of one of them.

    SQLite works on with the files that it has open, so whatever is written from then on is lost
    though it was acknowledged. From a thread, because the others may wait for a lock.
    """
    _anchor_names()
    path = database_path(using)
    if path is None:
        yield
        return
    files = DatabaseFiles(using, path)
    ended = Event()
    thread = Thread(target=_watch, args=(files, ended, stop), name="mqlite-file", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _anchor_names() -> None:
    """A handler may change the directory, and threads connect to a relative NAME later."""
    for connection in connections.all():
        if connection.vendor == "sqlite":
            settings = connection.settings_dict  # that of every thread
            settings["NAME"] = anchored(str(settings["NAME"]))


def _watch(files: "DatabaseFiles", ended: Event, stop: Stop) -> None:
    while not ended.wait(LOOK_EVERY):
        if gone := files.gone():
            logger.error(
                "%s was replaced or removed; this process ends, to be started on the files that "
                "are there now. While a process uses a database, nothing but SQLite may open, move "
                "or remove its files",
                gone,
            )
            stop.leave(1)  # without closing: SQLite would write the lost log into the file


class DatabaseFiles:
    """The file of the database and SQLite's two beside it, as they were when they were opened.

    They are looked up, never opened: closing one would drop SQLite's locks.
    """

    def __init__(self, using: str, path: Path) -> None:
        with suppress(Error):  # whoever works with it says so
            file_facts(connections[using])  # from the first read on they are there, and stay
        files = [path, *(sidecar(path, suffix) for suffix in SIDECARS)]
        self._seen: dict[Path, Identity | None] = dict.fromkeys(files)
        self.gone()

    def gone(self) -> Path | None:
        """The first that is not the file that it was. One that was never there may come yet."""
        for path, before in self._seen.items():
            now = _identity(path)
            if before is None:
                self._seen[path] = now
            elif now != before:
                return path
        return None


def _identity(path: Path) -> Identity | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
