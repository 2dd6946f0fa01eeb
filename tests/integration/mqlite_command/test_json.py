"""What the --json of every command has in common: ISO 8601 times, and one document."""

import contextlib
import io
import json
import re
from datetime import datetime

import pytest
from django.core.management import CommandError

from django_mqlite.models import AccessKey, Message
from tests.support.verbs import claim_one

from .busy_shop import fill
from .calls import SLEEP, mqlite

COMMANDS = (
    "stats", "queues", "queues orders", "workers", "subscriptions", "schedules",
    "schedules nightly-report", "schedules nightly-report pause", "list --limit 9999", "errors",
    "peek orders", "peek emails --dead", "health", "doctor --quick", "keys", "why nightly-report",
    "enqueue orders 1 --delay 60 --group a", "publish prices 1", "pause orders", "resume orders",
)  # fmt: skip
TIME = re.compile(r"_(at|until|since|tick|run)$")
"""The names of times."""
EPOCHS = ((1.7e9, 1.9e9), (1.7e12, 1.9e12))
"""What times would be in seconds and in milliseconds since the epoch."""


@pytest.fixture
def documents(clock, db, settings, healthy_machine, monkeypatch):
    """The document of every command that only needs a busy shop, and of every message."""
    settings.MQLITE = {
        "SCHEDULES": {"nightly-report": {"cron": "0 3 * * *", "queue": "reports", "data": None}}
    }
    fill(clock)
    Message.objects.enqueue("empty", None, ttl=60)
    claim_one("empty").abandon(delay=5, error=ValueError("x"))
    AccessKey.objects.create_key("shop", send=["*"], expires_in=60)

    def interrupt(seconds):
        raise KeyboardInterrupt

    monkeypatch.setattr(SLEEP, interrupt)
    ids = Message.objects.exclude(queue="newsletter").values_list("pk", flat=True)
    about = [f"{verb} {id}" for id in [*ids, 99_999] for verb in ("show", "why")]
    return {command: document(command) for command in (*COMMANDS, *about)}


def document(command):
    stdout = io.StringIO()
    with contextlib.suppress(CommandError, SystemExit):
        mqlite(*command.split(), "--json", stdout=stdout)
    return json.loads(stdout.getvalue() or "{}")


def values(document, path=()):
    """Yield each value with the names on the way to it."""
    match document:
        case dict():
            for name, value in document.items():
                yield from values(value, (*path, name))
        case list():
            for value in document:
                yield from values(value, path)
        case _:
            yield path, document


def test_every_time_is_iso_8601_with_an_offset(documents):
    times = {}
    for command, document in documents.items():
        for path, value in values(document):
            if TIME.search(path[-1]) and value is not None:
                assert datetime.fromisoformat(value).tzinfo, (command, path)
                times.setdefault(path[-1], value)

    expected = {
        "enqueued_at", "visible_at", "expires_at", "locked_until", "finished_at", "started_at",
        "failed_at", "due_since", "next_run", "seen_at", "created_at", "kept_until",
    }  # fmt: skip
    assert expected <= times.keys()


def test_no_number_is_a_time(documents):
    for command, document in documents.items():
        for path, value in values(document):
            if isinstance(value, int | float):
                assert not any(low < value < high for low, high in EPOCHS), (command, path, value)


def test_errors_of_a_message_have_iso_times(documents):
    (retrying,) = (
        document
        for command, document in documents.items()
        if command.startswith("show") and document.get("queue") == "empty"
    )

    assert retrying["errors"][0]["started_at"] == "2026-01-01T00:03:00+00:00"
    assert retrying["errors"][0]["failed_at"] == "2026-01-01T00:03:00+00:00"


def test_every_answer_is_a_document_with_names(documents):
    assert [command for command in COMMANDS if not documents[command]] == []
    assert {type(document) for document in documents.values()} == {dict}
