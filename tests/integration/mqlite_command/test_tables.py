"""Every table at every width, with the rows of a busy shop: whole, straight and safe."""

import re

import pytest
from rich.cells import cell_len

from django_mqlite.models import DeadLetter, Message

from .busy_shop import LONG, QUEUES, fill
from .calls import Terminal, mqlite

TABLES = {
    "stats": "emails",
    "queues": "emails",
    "workers": "web-1.example.com:4711:ab12",
    "subscriptions": "prices",
    "schedules": "nightly-report",
    "list": "1",
    "list orders": "1",
    "list --state dead-lettered": "1247",
    "errors emails": "1",
    "peek orders": "3",
    f"peek {LONG}": "2",
    "peek emails --dead": "1243",
}
"""Commands that print a table, and the beginning of a row."""
COLOR = re.compile(r"\x1b\[[0-9;]*m")


@pytest.fixture
def shop(clock, db, settings):
    settings.MQLITE = {
        "SCHEDULES": {
            "nightly-report": {"cron": "0 3 * * *", "queue": "reports", "data": {"a": 1}},
            LONG: {"every": 300, "queue": LONG, "data": None},
        }
    }
    fill(clock)


@pytest.fixture
def on_terminal(monkeypatch):
    """Run a command on a terminal of a width, and return the lines."""

    def run(command, columns, *options):
        monkeypatch.setenv("COLUMNS", str(columns))
        return mqlite(*command.split(), *options, stdout=Terminal()).splitlines()

    return run


@pytest.mark.parametrize("command", TABLES)
def test_table_fits_every_terminal(shop, on_terminal, command):
    for columns in (200, 120, 80, 60, 40, 25):
        lines = on_terminal(command, columns)

        assert max(map(cell_len, lines)) <= columns
        assert "\x1b" not in "".join(lines)
        assert any(line.lstrip().startswith(TABLES[command][:columns]) for line in lines)


def test_stats_have_every_queue_and_count_at_each_width(shop, on_terminal):
    for columns in (80, 40):
        text = "".join(line.strip() for line in on_terminal("stats", columns))

        assert [name for name in QUEUES if name not in text] == []
        assert "1,234" in text
        assert "8,211" in text


def test_stats_at_80_columns_are_two_aligned_tables(shop, on_terminal):
    first, second = "\n".join(on_terminal("stats", 80)).split("\n\n")

    assert first.splitlines()[:3] == [
        "queue          active  blocked  locked  scheduled  retrying  deferred  completed",
        "emails              0        0       0          0         0         0          0",
        "empty               0        0       0          0         0         0          0",
    ]
    assert second.splitlines()[:3] == [
        "                   dead-  oldest",
        "queue           lettered  due     workers  busy  done/h  failed/h  note",
        "emails                 3  -             0  -      8,211        14  -",
    ]


def test_stats_at_40_columns_are_records_without_zeros(shop, on_terminal):
    lines = on_terminal("stats", 40)

    start = lines.index("emails  dead-lettered: 3  workers: 0")
    assert lines[start : start + 3] == [
        "emails  dead-lettered: 3  workers: 0",
        "  done/h: 8,211  failed/h: 14",
        "empty  workers: 0",
    ]


def test_table_in_a_pipe_is_whole(shop):
    text = mqlite("stats")

    heads, *rows = text.splitlines()
    assert heads.split("  ")[0] == "queue"
    assert len(rows) == len(QUEUES) + 2
    assert LONG in text
    (paused,) = (row for row in rows if row.startswith("newsletter"))
    assert heads.index("note") == paused.index("paused")
    assert "\x1b" not in text


def test_pipe_is_whole_whatever_columns_says(shop, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    narrow = mqlite("stats")
    monkeypatch.delenv("COLUMNS")

    assert mqlite("stats") == narrow


def test_columns_that_are_empty_or_selected_are_left_out(shop):
    (heads, *_) = mqlite("list", "orders", "--state", "active").splitlines()

    assert heads.split() == ["id", "age", "group", "subject"]


def test_list_shows_when_a_message_is_due_and_that_it_is_retrying_or_blocked(shop):
    rows = {
        Message.objects.get(pk=line.split()[0]).queue: line
        for line in mqlite("list", "--limit", "2000").splitlines()[1:]
    }

    assert re.search(r"webhooks +retrying +3 min +in 7 min +1 ", rows["webhooks"])
    assert re.search(r"orders +locked +3 min ", rows["orders"])
    assert " blocked " in mqlite("list", "orders", "--search", "注文")


def test_errors_of_dead_letters_are_shown_rather_than_their_general_reason(shop):
    Message.objects.enqueue("empty", 1, max_delivery_count=1)
    (message,) = Message.objects.claim("empty")
    message.abandon(error=KeyError("id"))

    assert DeadLetter.objects.get(pk=message.pk).dead_letter_reason == "MaxDeliveryCountExceeded"
    assert re.search(r" 1  KeyError: 'id'$", mqlite("peek", "empty", "--dead").strip())
    assert re.search(
        r"NotDelivered: 550 no such user, KeyError: 'template_id'",
        mqlite("peek", "emails", "--dead"),
    )


# Colors


RED, YELLOW, RESET = "\x1b[31;1m", "\x1b[33;1m", "\x1b[0m"


@pytest.mark.parametrize(
    ("command", "painted"),
    [
        ("stats", [f"{RED}3{RESET}", f"{YELLOW}paused{RESET}", f"{RED}2 min{RESET}"]),
        ("queues", [f"{YELLOW}yes{RESET}"]),
        ("workers", [f"{RED}lost{RESET}"]),
        ("list emails", [f"{RED}dead-lettered{RESET}"]),
        ("list webhooks", [f"{YELLOW}retrying{RESET}"]),
    ],
)
def test_only_what_is_wrong_has_a_color(shop, clock, monkeypatch, command, painted):
    monkeypatch.setenv("NO_COLOR", "1")  # an option of the command line is stronger
    if command == "workers":
        clock.advance(120)

    text = mqlite(*command.split(), "--force-color")

    for part in painted:
        assert part in text
    assert mqlite(*command.split()) == COLOR.sub("", text)


def test_empty_values_have_no_color(shop):
    assert f"{YELLOW}-" not in mqlite("queues", "--force-color")
