"""Output of subcommands: aligned text or JSON."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from textwrap import shorten
from typing import Any

from django.core.management.base import OutputWrapper
from django.utils.timezone import localtime


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """One answer in one of three forms."""

    stdout: OutputWrapper
    stderr: OutputWrapper
    as_json: bool = False

    def answer(self, document: Any, text: str) -> None:
        """The document as JSON, or the text."""
        self._write(json.dumps(document, indent=2) if self.as_json else text)

    def line(self, document: Any, text: str) -> None:
        """One of many answers that come as time goes by: JSON on a line of its own, or the text."""
        self._write(json.dumps(document) if self.as_json else text)
        self.stdout.flush()

    def answer_table(
        self, document: Any, heads: Sequence[str], rows: Iterable[Sequence[Any]], *, empty: str
    ) -> None:
        """The document as JSON, or a table, or, without rows, the sentence `empty`."""
        cells = [[cell(value) for value in row] for row in rows]
        if self.as_json or not cells:
            self.answer(document, empty)
        else:
            self._write(_table(heads, cells))

    def _write(self, text: str) -> None:
        """Write the text; letters that the stream's encoding does not have are escaped."""
        encoding = getattr(self.stdout, "encoding", None) or "utf-8"
        self.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding))


PREVIEW = 50


def shortened(text: str | None) -> str | None:
    """As much of a text as a table has room for."""
    return shorten(text, PREVIEW, placeholder=" …") if text else text


def beginning(body: bytes | memoryview) -> str | None:
    """The beginning of a body."""
    return shortened(bytes(body[:PREVIEW]).decode(errors="replace"))


def lines(text: str) -> str:
    """Text of several lines, in letters that a terminal prints and does not obey."""
    return "\n".join("".join(map(_shown, line)) for line in text.splitlines())


def cell(value: Any) -> str:
    """A value on one line, in letters that a terminal prints and does not obey."""
    match value:
        case None | "":
            return "-"
        case bool():
            return "yes" if value else "no"
        case datetime():
            return f"{localtime(value):%Y-%m-%d %H:%M:%S}"
        case _:
            return "".join(map(_shown, str(value)))


def iso(at: datetime | None) -> str | None:
    """A time in JSON."""
    return at.isoformat() if at else None


def _shown(letter: str) -> str:
    return letter if letter.isprintable() else ascii(letter)[1:-1]


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    table = [heads, *rows]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in table)
