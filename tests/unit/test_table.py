"""Tables of the command line: what is left out, truncated and wrapped at each width."""

import pytest
from rich.cells import cell_len

from django_mqlite.management.cli.table import (
    Cell,
    Column,
    Page,
    display_width,
    format_table,
    text_column,
    truncated,
    wrapped,
)


def cell(value):
    if isinstance(value, int):
        return Cell(text=f"{value:,}", is_number=True, is_empty=not value)
    return Cell(text=value or "-", is_empty=not value)


def table(columns, *rows, width=None, parts=1):
    columns = [Column(column) if isinstance(column, str) else column for column in columns]
    cells = [[cell(value) for value in row] for row in rows]
    return format_table(columns, cells, Page(width=width), parts=parts).splitlines()


def test_numbers_are_aligned_to_the_right_and_texts_to_the_left():
    assert table(["queue", "active", "note"], ["emails", 7, "a"], ["jobs", 12_345, "bc"]) == [
        "queue   active  note",
        "emails       7  a",
        "jobs    12,345  bc",
    ]


def test_columns_without_a_value_are_left_out_unless_they_are_kept():
    columns = ["queue", "active", "reason", Column("workers", is_kept=True)]

    assert table(columns, ["", 0, "", 0]) == ["queue  workers", "-            0"]


def test_free_text_is_truncated_before_anything_else():
    columns = ["id", text_column("subject"), "state"]

    assert table(columns, ["1234567890", "s" * 50, "dead-lettered"], width=50) == [
        "id          subject                  state",
        "1234567890  ssssssssssssssssssssss…  dead-lettered",
    ]


def test_long_heading_is_broken_before_a_table_is_too_wide():
    columns = ["queue", "dead-lettered", "oldest due"]

    assert table(columns, ["jobs", 3, "5 min"], width=25) == [
        "          dead-  oldest",
        "queue  lettered  due",
        "jobs          3  5 min",
    ]


def test_long_first_value_is_on_a_line_of_its_own():
    assert table(["queue", "active"], ["q" * 20, 1], ["jobs", 22], width=20) == [
        "queue         active",
        "q" * 20,
        "                   1",
        "jobs              22",
    ]


def test_wide_table_becomes_records_with_all_values():
    columns = ["queue", "active", "locked", text_column("note")]

    assert table(columns, ["emails", 700_000, 12, ""], ["jobs", 1, 0, "paused"], width=22) == [
        "emails",
        "  active: 700,000",
        "  locked: 12",
        "jobs  active: 1",
        "  note: paused",
    ]


def test_wide_table_becomes_two_tables_if_it_may():
    columns = ["queue", "active", "locked", "done/h"]

    assert table(columns, ["emails", 700_000, 12, 5], width=24, parts=2) == [
        "queue    active  locked",
        "emails  700,000      12",
        "",
        "queue   done/h",
        "emails       5",
    ]


@pytest.mark.parametrize("width", range(20, 80))
def test_no_line_is_wider_than_the_terminal_and_no_number_is_cut(width):
    columns = ["id", "queue", "count", text_column("subject")]
    rows = [[1, "emails-第二", 123_456, "Grüße 🐘 an alle"], [22, "q" * 30, 7, "s" * 60]]

    lines = table(columns, *rows, width=width)

    assert max(map(cell_len, lines)) <= width
    assert any("123,456" in line for line in lines)


# The width of text

TEXTS = {
    "plain": 5,
    "Grüße": 5,
    "e\u0301": 1,
    "注文の確認": 10,
    "ﾊﾝｶｸ": 4,
    "🐘": 2,
    "❤\ufe0f": 2,
    "": 0,
}


@pytest.mark.parametrize("text", TEXTS)
def test_width_is_that_of_a_terminal(text):
    assert display_width(text) == TEXTS[text] == cell_len(text)


@pytest.mark.parametrize("text", [*TEXTS, "注文の確認 🐘 e\u0301\u0301 confirmed" * 3])
@pytest.mark.parametrize("width", [1, 2, 3, 7, 20])
def test_truncated_text_fits_and_is_the_beginning(text, width):
    short = truncated(text, width)

    assert cell_len(short) <= width
    assert text.startswith(short.removesuffix("…"))
    assert (short == text) == (cell_len(text) <= width)


def test_wrapped_text_is_complete_and_broken_at_spaces():
    assert wrapped("the quick brown fox", 10) == ["the quick", "brown fox"]
    assert wrapped("a" * 25, 10) == ["a" * 10, "a" * 10, "a" * 5]
    assert wrapped("注文の確認", 5) == ["注文", "の確", "認"]
    assert wrapped("", 5) == [""]
