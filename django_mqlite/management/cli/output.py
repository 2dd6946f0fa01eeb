"""The output of commands: text or JSON, tables, colors, confirmations, errors and exit codes."""

import json
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime
from time import sleep
from typing import Any, NamedTuple

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import CommandError, OutputWrapper
from django.core.management.color import Style
from django.db import Error
from django.utils.timezone import localtime

from django_mqlite import timing
from django_mqlite.exceptions import MqliteError
from django_mqlite.formatting import SECOND, format_duration, printable
from django_mqlite.worker.database_errors import advice
from django_mqlite.worker.progress import progress_bar

from .table import Cell, Column, Page, format_table, truncated

PREVIEW = 50
MAX_CAUSE = 100
ERROR, WARNING, SUCCESS = "ERROR", "WARNING", "SUCCESS"
"""The styles of Django for what is wrong, for what may be wrong, and for what is well."""
NO_QUEUES = "There are no queues. Declare them in MQLITE['QUEUES'] and run `manage.py migrate`."


class OutputFailed(Exception):
    """Stdout cannot be written, for example because the disk is full."""


class Marked(NamedTuple):
    """A value of a table in the color of a level."""

    value: Any
    level: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """Write the output of a command as text or as JSON."""

    stdout: OutputWrapper
    stderr: OutputWrapper
    style: Style
    as_json: bool = False

    def answer(self, document: Any, text: str, *, failed: bool = False) -> None:
        """Write the document as JSON, or the text; exit with code 1 if the command failed."""
        self._write(_json(document, indent=2) if self.as_json else text)
        if failed:
            sys.exit(1)

    def line(self, document: Any, text: str) -> None:
        """Write one answer of a stream: JSON on a single line, or the text."""
        self._write(_json(document) if self.as_json else text)
        self.stdout.flush()

    def answer_table(
        self,
        document: Any,
        columns: Sequence[Column | str],
        rows: Iterable[Sequence[Any]],
        *,
        empty: str,
        parts: int = 1,
    ) -> None:
        """Write the document as JSON, or a table; if there are no rows, the sentence `empty`.

        A table that is too wide for the terminal may become `parts` tables, or records.
        """
        if self.as_json:
            self.answer(document, "")
            return
        cells = [[self._cell(value) for value in row] for row in rows]
        described = [Column(column) if isinstance(column, str) else column for column in columns]
        table = format_table(described, cells, self._page(), parts=parts) if cells else empty
        self.answer(document, table)

    def colored(self, text: str, level: str) -> str:
        """Return the text in the color of a level; unchanged without colors or a level."""
        return str(getattr(self.style, level)(text)) if level else text

    def note(self, text: str, *, ending: str = "\n") -> None:
        """Write to stderr, so that stdout contains only the answer."""
        self.stderr.write(text, style_func=str, ending=ending)
        self.stderr.flush()

    @contextmanager
    def progress(self, unit: str, total: int) -> Iterator[Callable[[int], None]]:
        """Show a progress bar on stderr if it is a terminal; after Ctrl-C, what has been done."""
        done = 0

        def update(number: int) -> None:
            nonlocal done
            done = number
            show(number)

        shown = self.stderr.isatty()
        try:
            with progress_bar(
                lambda text: self.note(text, ending=""), unit, total, shown=shown
            ) as show:
                yield update
        except KeyboardInterrupt:
            self.note(f"Interrupted after {done:,} of {total:,} {unit}.")
            raise

    def confirm(self, question: str, options: Mapping[str, Any]) -> None:
        """Return if --yes was given or the answer is yes; raise CommandError otherwise."""
        if options["yes"]:
            return
        require_terminal(options)
        self.note(f"{question} [y/N] ", ending="")
        try:
            reply = sys.stdin.readline()
        except KeyboardInterrupt:
            reply = ""
        if reply.strip().lower() not in ("y", "yes"):
            raise CommandError("Nothing was done.")

    def _write(self, text: str) -> None:
        try:
            self.stdout.write(self._encodable(text))
        except BrokenPipeError:
            raise
        except OSError as error:
            raise OutputFailed(error.strerror) from error

    def _encodable(self, text: str) -> str:
        """Escape characters that the encoding of stdout does not have."""
        encoding = getattr(self.stdout, "encoding", None) or "utf-8"
        return text.encode(encoding, "backslashreplace").decode(encoding)

    def _cell(self, value: Any) -> Cell:
        if isinstance(value, Marked):
            level = "" if value.value is None else value.level
            return replace(self._cell(value.value), level=level)
        is_number = isinstance(value, int) and not isinstance(value, bool)
        text = f"{value:,}" if is_number else cell(value)
        is_empty = value in (None, "", 0)
        return Cell(text=self._encodable(text), is_empty=is_empty, is_number=is_number)

    def _page(self) -> Page:
        """Return the page of a terminal; a pipe or a file is of unlimited width."""
        has_ellipsis = self._encodable("…") == "…"
        return Page(
            width=max(shutil.get_terminal_size().columns, 20) if self.stdout.isatty() else None,
            ellipsis="…" if has_ellipsis else "...",
            paint=self.colored,
        )


def require_terminal(options: Mapping[str, Any]) -> None:
    """Raise CommandError if a confirmation is needed and stdin is not a terminal."""
    if not options["yes"] and not (sys.stdin and sys.stdin.isatty()):
        raise CommandError(
            "Cannot ask for confirmation without a terminal: pass --yes. Nothing was done."
        )


@contextmanager
def as_command_error(*expected: type[Exception]) -> Iterator[None]:
    """Convert expected errors to a CommandError: one sentence, exit code 1, no traceback."""
    refusals: tuple[type[Exception], ...] = (MqliteError, ImproperlyConfigured, *expected)
    try:
        yield
    except refusals as error:
        raise CommandError(str(error)) from error
    except Error as error:
        raise CommandError(f"The database failed: {error} ({advice(error)}).") from error


def repeat(show: Callable[[], None], *, every: float) -> None:
    """Call `show` at intervals of `every` seconds, until Ctrl-C."""
    with suppress(KeyboardInterrupt):
        while True:
            show()
            sleep(every)


def plural(count: int, noun: str) -> str:
    """Return a count with its noun: 1 message, 2 messages."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def shortened(text: str | None, width: int = PREVIEW) -> str | None:
    """Return the beginning of a text on one line, for a table."""
    return truncated(" ".join(text.split()), width) if text else text


def beginning(body: bytes | memoryview) -> str | None:
    """Return the beginning of a body, for a table."""
    return shortened(bytes(body[: 4 * PREVIEW]).decode(errors="replace"))


def lines(text: str) -> str:
    """Escape the control characters of a text, except for line breaks."""
    return "\n".join(map(printable, text.splitlines()))


def cell(value: Any) -> str:
    """Return a value as printable text on one line."""
    match value:
        case None | "":
            return "-"
        case bool():
            return "yes" if value else "no"
        case datetime():
            return f"{localtime(value):%Y-%m-%d %H:%M:%S}"
        case _:
            return printable(str(value))


def _json(document: Any, indent: int | None = None) -> str:
    return json.dumps(document, indent=indent, default=datetime.isoformat)


def age(at: datetime | int | None) -> str | None:
    """Return how long ago a time was, or in how long it will be; None without a time.

    An integer is in epoch milliseconds.
    """
    if not at:
        return None
    ms = timing.now_ms() - (at if isinstance(at, int) else timing.epoch_ms(at))
    length = format_duration(abs(ms) // SECOND * SECOND, units=1)
    return length if ms >= 0 else f"in {length}"


def ago(at: datetime | int | None) -> str | None:
    """Return a past time such as `3 min ago`; None without a time."""
    length = age(at)
    return f"{length} ago" if length else None
