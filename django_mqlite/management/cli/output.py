"""The output of commands: text or JSON, tables, confirmations, errors and exit codes."""

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import datetime
from textwrap import shorten
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import CommandError, OutputWrapper
from django.db import Error
from django.utils.timezone import localtime

from django_mqlite.exceptions import MqliteError
from django_mqlite.formatting import printable
from django_mqlite.worker.database_errors import advice
from django_mqlite.worker.progress import progress_bar

PREVIEW = 50
NO_QUEUES = "There are no queues. Declare them in MQLITE['QUEUES'] and run `manage.py migrate`."


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """Write the output of a command as text or as JSON."""

    stdout: OutputWrapper
    stderr: OutputWrapper
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
        self, document: Any, headings: Sequence[str], rows: Iterable[Sequence[Any]], *, empty: str
    ) -> None:
        """Write the document as JSON, or a table; if there are no rows, the sentence `empty`."""
        cells = [[cell(value) for value in row] for row in rows]
        self.answer(document, _table(headings, cells) if cells else empty)

    def note(self, text: str, *, ending: str = "\n") -> None:
        """Write to stderr, so that stdout contains only the answer."""
        self.stderr.write(text, style_func=str, ending=ending)
        self.stderr.flush()

    def progress(self, unit: str, total: int) -> AbstractContextManager[Callable[[int], None]]:
        """Show a progress bar on stderr if it is a terminal."""
        return progress_bar(
            lambda text: self.note(text, ending=""), unit, total, shown=self.stderr.isatty()
        )

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
        """Write the text; escape characters that the stream's encoding does not have."""
        encoding = getattr(self.stdout, "encoding", None) or "utf-8"
        self.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding))


def require_terminal(options: Mapping[str, Any]) -> None:
    """Raise CommandError if a confirmation is needed and stdin is not a terminal."""
    if not options["yes"] and not sys.stdin.isatty():
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


def plural(count: int, noun: str) -> str:
    """Return a count with its noun: 1 message, 2 messages."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def shortened(text: str | None) -> str | None:
    """Return the beginning of a text, for a table."""
    return shorten(text, PREVIEW, placeholder=" …") if text else text


def beginning(body: bytes | memoryview) -> str | None:
    """Return the beginning of a body, for a table."""
    return shortened(bytes(body[:PREVIEW]).decode(errors="replace"))


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


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    table = [headings, *rows]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in table)
