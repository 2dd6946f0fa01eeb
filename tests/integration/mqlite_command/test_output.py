"""Text and JSON on terminals and in pipes: letters, control characters and progress bars."""

import io
import json

import pytest

from django_mqlite.models import Message
from tests.support.verbs import enqueue_and_claim
from tests.support.workers import ALIAS

from .calls import Terminal, mqlite

LETTERS = "Grüße 🐘"
ESCAPES = "\x1b[2J\x1b]0;title\x07 [red]markup[/red]\nsecond line"


class AsciiPipe(io.TextIOWrapper):
    """A stream as a shell with LC_ALL=C opens it."""

    def __init__(self) -> None:
        super().__init__(io.BytesIO(), encoding="ascii", errors="strict", write_through=True)

    def getvalue(self) -> str:
        return self.buffer.getvalue().decode("ascii")


@pytest.fixture
def messages_with(queue):
    """Store a dead letter and an active message with a text in every column that is shown."""

    def store(text):
        options = {"group_id": text, "subject": text, "properties": {text: text}}
        dead = enqueue_and_claim("jobs", text, message_id=text, **options)
        dead.reject(text, text, error=text)
        Message.objects.enqueue("jobs", text, message_id="second", **options)

    return store


@pytest.mark.parametrize("json", [(), ("--json",)], ids=["text", "json"])
@pytest.mark.parametrize(
    "command",
    [("show", "1"), ("why", "1"), ("peek", "jobs"), ("peek", "jobs", "--dead"), ("list",)],
    ids=" ".join,
)
def test_letters_outside_the_encoding_are_escaped(messages_with, command, json):
    messages_with(LETTERS)

    text = mqlite(*command, *json, stdout=AsciiPipe())

    assert "\\xfc" in text or "\\u00fc" in text


@pytest.mark.parametrize("stream", [io.StringIO, Terminal])
def test_letters_of_the_encoding_are_printed(messages_with, stream):
    messages_with(LETTERS)

    assert LETTERS in mqlite("show", "1", stdout=stream())


@pytest.mark.parametrize("stream", [io.StringIO, Terminal])
def test_control_characters_and_markup_are_printed_as_text(messages_with, monkeypatch, stream):
    monkeypatch.setenv("COLUMNS", "300")
    messages_with(ESCAPES)

    for command in (
        ("show", "1"), ("why", "1"), ("peek", "jobs"), ("peek", "jobs", "--dead"), ("list",)
    ):  # fmt: skip
        text = mqlite(*command, stdout=stream())

        assert "[red]" in text, command
        assert "\x1b" not in text, command
        assert "\x07" not in text, command


@pytest.mark.parametrize("stream", [io.StringIO, Terminal])
@pytest.mark.parametrize(
    ("command", "unit"),
    [
        (("redrive", "jobs", "--yes"), "dead letters"),
        (("purge", "jobs", "--all", "--yes"), "dead letters"),
        (("backup", "copy.sqlite3"), "bytes"),
    ],
    ids=["redrive", "purge", "backup"],
)
def test_progress_is_shown_on_terminals_only(
    database, tmp_path, monkeypatch, command, unit, stream
):
    monkeypatch.chdir(tmp_path)
    database.enqueue("jobs")
    database.claim("jobs")[0].reject("Broken")
    stderr = stream()

    assert json.loads(mqlite(*command, "--database", ALIAS, "--json", stderr=stderr))

    assert (f"{unit} ####" in stderr.getvalue()) == stderr.isatty()
