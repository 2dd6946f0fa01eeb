"""A terminal whose encoding has few letters."""

import io

import pytest

from django_mqlite.models import Message, Queue
from tests.support.verbs import enqueue_and_claim

from .calls import Terminal, mqlite

pytestmark = pytest.mark.django_db
TEXT = "Grüße 🐘"


class AsciiPipe(io.TextIOWrapper):
    """A stream as a shell with LC_ALL=C opens it."""

    def __init__(self) -> None:
        super().__init__(io.BytesIO(), encoding="ascii", errors="strict", write_through=True)

    def getvalue(self) -> str:
        return self.buffer.getvalue().decode("ascii")


class AsciiTerminal(AsciiPipe):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def letters(db):
    """Messages with letters beyond ASCII everywhere a command shows them."""
    Queue.objects.create_queue("letters")
    options = {"group_id": TEXT, "subject": TEXT, "message_id": TEXT, "properties": {TEXT: TEXT}}
    dead = enqueue_and_claim("letters", TEXT, **options)
    dead.reject("Broken", TEXT)
    waiting = Message.objects.enqueue("letters", TEXT, **{**options, "message_id": "second"})
    return dead, waiting


@pytest.mark.parametrize("stream", [AsciiPipe, AsciiTerminal])
@pytest.mark.parametrize("json", [(), ("--json",)], ids=["text", "json"])
@pytest.mark.parametrize(
    "command",
    [
        ("show", "1"),
        ("show", TEXT),
        ("why", "1"),
        ("peek", "letters"),
        ("peek", "letters", "--dead"),
        ("list",),
        ("list", "letters"),
        ("stats",),
        ("redrive", "letters"),
    ],
    ids=" ".join,
)
def test_letters_that_the_stream_does_not_have_are_escaped(letters, command, json, stream):
    output = stream()
    shown = mqlite(*command, *json, stdout=output)

    assert shown
    if command[0] in ("show", "peek") and command[1:] != (TEXT,):
        assert "\\xfc" in shown or "\\u00fc" in shown


@pytest.mark.parametrize("stream", [io.StringIO, Terminal])
def test_letters_that_the_stream_has_are_left_alone(letters, stream):
    assert TEXT in mqlite("show", "1", stdout=stream())
