"""Tables for terminals of any width: aligned columns, or a record per row if they do not fit."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from unicodedata import category, east_asian_width

GAP = "  "
MIN_TEXT = 20
"""The narrowest column of truncated text, in characters."""
MIN_FIRST = 12
"""The narrowest first column with longer values on lines of their own."""
VARIATION_SELECTOR_16 = "\ufe0f"
"""Asks for the emoji form of the previous character, which is two columns wide."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table. The first one, and numbers, are never truncated.

    `is_text`: free text, which may be truncated to make room. `is_kept`: shown even if every row
    is empty.
    """

    heading: str
    is_text: bool = False
    is_kept: bool = False


def text_column(heading: str) -> Column:
    """Return a column of free text."""
    return Column(heading, is_text=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """A formatted value; `level` is "" or the name of one of Django's styles, such as "ERROR"."""

    text: str
    is_empty: bool = False
    is_number: bool = False
    level: str = ""


Row = Sequence[Cell]
Paint = Callable[[str, str], str]
"""Return a text in the color of a level."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """The width of the output in columns, None if it is not limited, and how to write on it."""

    width: int | None
    ellipsis: str = "…"
    paint: Paint = lambda text, level: text


def format_table(
    columns: Sequence[Column], rows: Sequence[Row], page: Page, *, parts: int = 1
) -> str:
    """Return the rows as a table, or as records if it would be wider than the page.

    Columns in which every row is empty are left out. Free text is truncated first. With `parts`, a
    wide table becomes up to so many tables below each other.
    """
    shown = [
        index
        for index, column in enumerate(columns)
        if index == 0 or column.is_kept or not all(row[index].is_empty for row in rows)
    ]
    columns = [columns[index] for index in shown]
    rows = [[row[index] for index in shown] for row in rows]
    tables = _tables(columns, rows, page, parts)
    return "\n\n".join(tables) if tables else "\n".join(_records(columns, rows, page))


# Columns


def _tables(
    columns: Sequence[Column], rows: Sequence[Row], page: Page, parts: int
) -> list[str] | None:
    """Return up to `parts` tables, each with the first column; None if they do not fit."""
    table = _table(columns, rows, page)
    if table is not None:
        return [table]
    for end in range(len(columns) - 1, 1, -1) if parts > 1 else ():
        table = _table(columns[:end], [row[:end] for row in rows], page)
        if table is not None:
            other_columns = [columns[0], *columns[end:]]
            others = [[row[0], *row[end:]] for row in rows]
            more = _tables(other_columns, others, page, parts - 1)
            return None if more is None else [table, *more]
    return None


def _table(columns: Sequence[Column], rows: Sequence[Row], page: Page) -> str | None:
    """Return the table, with headings of several lines if necessary; None if it does not fit."""
    for headings in ([[column.heading] for column in columns], _wrapped_headings(columns, rows)):
        widths = _widths(columns, headings, rows, page)
        if widths is not None:
            return "\n".join(_lines(headings, rows, widths, page))
    return None


def _wrapped_headings(columns: Sequence[Column], rows: Sequence[Row]) -> list[list[str]]:
    """Return the lines of each heading, broken after spaces and hyphens."""
    headings = []
    for index, column in enumerate(columns):
        widest = max(display_width(row[index].text) for row in rows)
        parts = re.findall(r"[^ -]+-?", column.heading)
        headings.append(parts if len(column.heading) > widest else [column.heading])
    return headings


def _widths(
    columns: Sequence[Column], headings: Sequence[Sequence[str]], rows: Sequence[Row], page: Page
) -> list[int] | None:
    """Return the width of each column; None if the table does not fit on the page.

    Free text is truncated to make room. After that, the first column may be narrower than its
    values: those that do not fit are on a line of their own.
    """
    minimums = [max(map(len, heading)) for heading in headings]
    widths = [
        max(minimum, *(display_width(row[index].text) for row in rows))
        for index, minimum in enumerate(minimums)
    ]
    if page.width is None:
        return widths
    excess = sum(widths) + len(GAP) * (len(widths) - 1) - page.width
    for shrinkable, minimum in (
        ([index for index, column in enumerate(columns) if column.is_text], MIN_TEXT),
        ([0], MIN_FIRST),
    ):
        excess = _shrink(widths, shrinkable, minimum, excess)
    return widths if excess <= 0 else None


def _shrink(widths: list[int], columns: Sequence[int], minimum: int, excess: int) -> int:
    """Make the widest of these columns narrower while it has to be; return what is left to do."""
    while excess > 0 and any(widths[index] > minimum for index in columns):
        widths[max(columns, key=widths.__getitem__)] -= 1
        excess -= 1
    return excess


def _lines(
    headings: Sequence[Sequence[str]], rows: Sequence[Row], widths: Sequence[int], page: Page
) -> Iterator[str]:
    numeric = [any(row[index].is_number for row in rows) for index in range(len(widths))]
    # The last line of each heading is next to the values.
    lines = reversed(list(zip_longest(*map(reversed, headings), fillvalue="")))
    heads = [[Cell(text=text) for text in line] for line in lines]
    for row in (*heads, *rows):
        first, *others = row
        if display_width(first.text) > widths[0]:
            yield from (
                page.paint(line, first.level) for line in wrapped(first.text, page.width or 0)
            )
            first = Cell(text="")
        yield GAP.join(
            _padded(cell, width, page, right=right)
            for cell, width, right in zip((first, *others), widths, numeric, strict=True)
        ).rstrip()


def _padded(cell: Cell, width: int, page: Page, *, right: bool) -> str:
    text = truncated(cell.text, width, page.ellipsis)
    padding = " " * (width - display_width(text))
    painted = page.paint(text, cell.level)
    return padding + painted if right else painted + padding


# Records


def _records(columns: Sequence[Column], rows: Sequence[Row], page: Page) -> Iterator[str]:
    """Yield each row as its first value, followed by its other values with their headings."""
    width = page.width or 0
    for first, *others in rows:
        lines = [[replace(first, text=part)] for part in wrapped(first.text, width)]
        for column, cell in zip(columns[1:], others, strict=True):
            if cell.is_empty and not column.is_kept:
                continue
            value = replace(cell, text=f"{column.heading}: {cell.text}")
            used = sum(display_width(part.text) + len(GAP) for part in lines[-1])
            if used + display_width(value.text) <= width:
                lines[-1].append(value)
            else:
                parts = wrapped(value.text, max(width - len(GAP), 1))
                lines += [[replace(value, text=GAP + part)] for part in parts]
        for line in lines:
            yield GAP.join(page.paint(cell.text, cell.level) for cell in line)


# The width of text


def display_width(text: str) -> int:
    """Return the number of columns that a terminal uses for the text."""
    if text.isascii():
        return len(text)
    width = previous = 0
    for character in text:
        current = _character_width(character)
        if character == VARIATION_SELECTOR_16 and previous == 1:
            current = 1
        width += current
        previous = current or previous
    return width


def _character_width(character: str) -> int:
    if category(character) in ("Mn", "Me"):
        return 0
    return 2 if east_asian_width(character) in "WF" else 1


def truncated(text: str, width: int, ellipsis: str = "…") -> str:
    """Return the text, or its beginning with an ellipsis if it is wider."""
    if display_width(text) <= width:
        return text
    return _beginning(text, width - len(ellipsis)) + ellipsis


def _beginning(text: str, width: int) -> str:
    """Return as many characters as fit, with the marks that belong to the last one."""
    end, used = 0, 0
    while end < len(text):
        used = display_width(text[: end + 1])
        if used > width:
            break
        end += 1
    return text[:end]


def wrapped(text: str, width: int) -> list[str]:
    """Return the text in lines of at most this width, broken at spaces where possible."""
    lines = []
    while display_width(text) > width:
        fitting = _beginning(text, width) or text[:1]
        rest = text[len(fitting) :]
        space = fitting.rfind(" ")
        if space > 0 and rest and not rest.startswith(" "):
            fitting, rest = text[:space], text[space:]
        lines.append(fitting)
        text = rest.lstrip(" ")
    return [*lines, text] if text or not lines else lines
