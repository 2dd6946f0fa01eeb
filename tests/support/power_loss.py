"""Simulated power losses: everything that was synced is kept, and any part of the rest.

Statements run once on a SQLite whose writes, truncations and syncs are recorded on a tape. Then the
power fails at any point of the tape, as often as needed. A write after the last sync of its file
may have reached the disk, or not, or only some of its sectors.
"""

import random
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apsw

SECTOR = 512
PAGES_OF_WAL = 60
"""The pages after which SQLite checkpoints: few, so that checkpoints are on the tape."""

State = tuple[tuple[str, tuple[Any, ...]], ...]


@dataclass(frozen=True, slots=True)
class Write:
    file: str
    offset: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Truncation:
    file: str
    size: int


@dataclass(frozen=True, slots=True)
class Sync:
    file: str


@dataclass(frozen=True, slots=True)
class Commit:
    """The acknowledgement of a commit: its statement has returned."""


Tape = list[Write | Truncation | Sync | Commit]


class TapingVFS(apsw.VFS):
    """The default file system of SQLite, with a tape."""

    def __init__(self, tape: Tape) -> None:
        self.tape = tape
        super().__init__("taping", "")

    def xOpen(self, name: Any, flags: list[int]) -> "TapingFile":  # noqa: N802 - SQLite's name
        return TapingFile(name, flags, self.tape)


class TapingFile(apsw.VFSFile):
    def __init__(self, name: Any, flags: list[int], tape: Tape) -> None:
        # Statement journals and other temporary files do not survive a power loss.
        kinds = {apsw.SQLITE_OPEN_WAL: "wal", apsw.SQLITE_OPEN_MAIN_DB: "database"}
        self.file = next((name for kind, name in kinds.items() if flags[0] & kind), "temporary")
        self.tape = tape
        super().__init__("", name, flags)

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802
        self.tape.append(Write(self.file, offset, bytes(data)))
        super().xWrite(data, offset)

    def xTruncate(self, size: int) -> None:  # noqa: N802
        self.tape.append(Truncation(self.file, size))
        super().xTruncate(size)

    def xSync(self, flags: int) -> None:  # noqa: N802
        self.tape.append(Sync(self.file))
        super().xSync(flags)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """The file before, its tape, and its state before and after each commit."""

    before: bytes
    tape: Tape
    states: list[State]

    def acknowledged(self, point: int) -> int:
        """Count the commits acknowledged before the point."""
        return sum(isinstance(event, Commit) for event in self.tape[:point])


def record(path: Path, statements: Iterable[tuple[str, Any]], *, synchronous: str) -> Recording:
    """Run the statements on the unused file at `path`, in WAL mode."""
    before, tape = path.read_bytes(), Tape()
    vfs = TapingVFS(tape)
    connection = apsw.Connection(str(path), vfs="taping")
    # Alone with the file: then the index of the log is in memory, and needs no other file.
    connection.execute("PRAGMA locking_mode = EXCLUSIVE")
    connection.execute(f"PRAGMA synchronous = {synchronous}")
    connection.execute(f"PRAGMA wal_autocheckpoint = {PAGES_OF_WAL}")
    states = [state_of(connection)]
    changes = connection.total_changes()
    for sql, parameters in statements:
        connection.execute(sql, parameters).fetchall()
        if not connection.in_transaction and connection.total_changes() != changes:
            changes = connection.total_changes()
            tape.append(Commit())
            states.append(state_of(connection))
    taped = list(tape)  # the closing is not part of it
    connection.close()
    vfs.unregister()
    return Recording(before=before, tape=taped, states=states)


def state_of(connection: Any) -> State:
    """Return every row of every table."""
    tables = connection.execute(
        "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
    ).fetchall()
    return tuple(
        (name, tuple(sorted(connection.execute(f"SELECT * FROM {name}").fetchall(), key=repr)))
        for (name,) in sorted(tables)
    )


def power_losses(
    recording: Recording, directory: Path, *, times: int, seed: int
) -> Iterator[tuple[int, State | None]]:
    """Yield the acknowledged commits and the state after power losses; None if damaged."""
    chance = random.Random(seed)
    for number in range(times):
        point = chance.randrange(len(recording.tape) + 1)
        files = left_behind(recording, point, chance)
        yield recording.acknowledged(point), state_after(directory / f"{number}.sqlite3", files)


def left_behind(recording: Recording, point: int, chance: random.Random) -> dict[str, bytes]:
    """Return the files after a power loss at this point of the tape."""
    kept = chance.choice([0.0, 0.5, 0.9, 1.0])
    files = {"database": bytearray(recording.before), "wal": bytearray()}
    for file, content in files.items():
        events = [e for e in recording.tape[:point] if getattr(e, "file", None) == file]
        synced = max((n for n, e in enumerate(events, 1) if isinstance(e, Sync)), default=0)
        for number, event in enumerate(events, 1):
            for part in _parts(event) if number > synced else [event]:
                if number <= synced or chance.random() < kept:
                    _apply(part, content)
    return {file: bytes(content) for file, content in files.items()}


def _parts(event: Any) -> Sequence[Any]:
    if not isinstance(event, Write):
        return [event]
    starts = range(0, len(event.data), SECTOR)
    return [Write(event.file, event.offset + n, event.data[n : n + SECTOR]) for n in starts]


def _apply(event: Any, content: bytearray) -> None:
    match event:
        case Write(offset=offset, data=data):
            content.extend(bytes(max(0, offset - len(content))))
            content[offset : offset + len(data)] = data
        case Truncation(size=size):
            del content[size:]


def state_after(path: Path, files: dict[str, bytes]) -> State | None:
    """Return the state for a program that opens the file afterwards; None if damaged."""
    path.write_bytes(files["database"])
    path.with_name(f"{path.name}-wal").write_bytes(files["wal"])
    try:
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("PRAGMA synchronous = OFF")  # the checkpoint when it closes
            sound = connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
            return state_of(connection) if sound else None
    except sqlite3.DatabaseError:
        return None
