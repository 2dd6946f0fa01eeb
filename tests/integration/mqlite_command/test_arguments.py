"""Arguments of mqlite that are rejected, and the exit code of a shell."""

import os
import subprocess
import sys

import pytest
from django.core.management import CommandError

from django_mqlite.models import Message, Queue, Subscription
from tests.support.source import ROOT
from tests.support.verbs import dead_letter

from .calls import mqlite

NUMBER = "use a whole number from 1"
NO_TERMINAL = "without a terminal: pass --yes. Nothing was done."
NOT_TEXT = "an argument must not contain lone surrogates"
BYTES = os.fsdecode(b"order-\xff")
REJECTED = [
    ((), "required: COMMAND"),
    (("stat",), "invalid choice: 'stat'"),
    (("stats", "--database", "other"), "invalid choice: 'other'"),
    (("doctor", "--slow"), "unrecognized arguments: --slow"),
    # arguments that are missing
    (("peek",), "required: QUEUE"),
    (("why",), "required: ID"),
    (("cancel",), "required: ID"),
    (("pause",), "required: QUEUE"),
    (("enqueue", "jobs"), "required: DATA"),
    (("subscribe", "orders"), "required: SUBSCRIPTION"),
    (("backup",), "required: PATH"),
    (("redrive", "jobs", "--id"), "expected at least one argument"),
    # numbers
    *((("peek", "jobs", "--limit", n), NUMBER) for n in ("0", "many", "9" * 19, "9" * 5000, "²")),
    (("list", "--limit", "0"), f"Invalid number '0': {NUMBER}"),
    (("purge", "jobs", "--id", "0", "--yes"), f"Invalid number '0': {NUMBER}"),
    (("show", "0"), f"Invalid number '0': {NUMBER}"),
    (("release", "0", "--yes"), f"Invalid number '0': {NUMBER}"),
    (("release", "x", "--yes"), "No message has the message id 'x'"),
    (("why", "9" * 5_000), NUMBER),
    (("redrive", "jobs", "--limit", "0"), NUMBER),
    (("redrive", "jobs", "--rate", "0"), "Invalid rate '0': use a positive number"),
    (("redrive", "jobs", "--rate", "nan"), "Invalid rate 'nan': use a positive number"),
    (("redrive", "jobs", "--rate", "many"), "Invalid rate 'many': use a positive number"),
    (("redrive", "jobs", "--rate", "1e9", "--yes"), "rate must be between"),
    (("enqueue", "jobs", "1", "--priority", "high"), "invalid int value"),
    (("enqueue", "jobs", "1", "--priority", 2**63), "priority"),
    # durations
    (("redrive", "jobs", "--older-than", "soon"), "Invalid duration 'soon': use seconds"),
    (("redrive", "jobs", "--older-than", "0s"), "Invalid duration '0s': use at least 0.001 s"),
    (("redrive", "jobs", "--older-than", "nan"), "Invalid duration 'nan': use seconds"),
    (("redrive", "jobs", "--older-than", "-1h"), "expected one argument"),
    (("redrive", "jobs", "--older-than", "9" * 400), "at most 100 years"),
    (("enqueue", "jobs", "1", "--delay", "later"), "Invalid duration 'later': use seconds"),
    (("enqueue", "jobs", "1", "--ttl", "later"), "Invalid duration 'later': use seconds"),
    (("stats", "--watch", "-1"), "Invalid duration '-1'"),
    (("stats", "--watch", "0"), "Invalid duration '0': use at least 0.1 s"),
    (("health", "--max-age", "9223372036854775807"), "at most 100 years"),
    # selections of dead letters
    (("redrive", "jobs", "--id", "1", "--limit", "1"), "--id and --limit cannot"),
    (("redrive", "jobs", "--id", "1", "--reason", "x"), "--id and --reason cannot"),
    (("purge", "jobs", "--id", "1", "--all", "--yes"), "--id and --all cannot"),
    (("purge", "jobs", "--yes"), "Nothing is selected: pass --id, --limit, --older"),
    (("purge", "jobs", "--all", "--limit", "1", "--yes"), "--all selects every dead letter"),
    (("purge", "jobs", "--all", "--reason", "x", "--yes"), "--all selects every dead letter"),
    # messages, states and pages
    (("why", "-1"), "No message has the message id '-1', and no recurring schedule"),
    (("show", "unknown"), "No message has the message id 'unknown'"),
    (("show", "99"), "there has never been a message #99"),
    (("list", "--state", "asleep"), "Invalid state 'asleep': use one of active, locked,"),
    (("list", "--after", "x"), "after must be the `next` of a page"),
    # new messages and subscriptions
    (("enqueue", "jobs", "{"), "DATA is not valid JSON"),
    (("enqueue", "jobs", "NaN"), "data is nan, which JSON cannot represent"),
    (("enqueue", "jobs", "1", "--property", "x"), "Invalid property 'x': use NAME=VALUE."),
    (("enqueue", "jobs", "1", "--property", "=x"), "Invalid property '=x': use NAME=VALUE."),
    (("enqueue", "jobs", "1", "--group", "g", "--priority", "1"), "priority"),
    (("subscribe", "orders", "stock", "--filter", "subject ="), "not a valid CEL expression"),
    (("subscribe", "orders", "stock", "--filter", "colour == 1"), "uses colour"),
    (("subscribe", "orders", "jobs"), "taken by a queue"),
    (("subscribe", "orders", "a b"), "Invalid queue name"),
    # messages by their ids or their queue
    (("discard",), "Nothing is selected: pass sequence numbers, or --queue."),
    (("activate",), "Nothing is selected: pass sequence numbers, or --queue."),
    (("discard", "1", "--queue", "jobs"), "Pass either sequence numbers or --queue, not both."),
    (("discard", "1", "--limit", "1"), "--limit selects messages of a queue"),
    (("discard", "1", "--state", "active"), "--state selects messages of a queue"),
    (("discard", "--queue", "jobs", "--state", "completed"), "Invalid state 'completed': use"),
    (("discard", "--queue", "job", "--yes"), "Did you mean 'jobs'?"),
    (("activate", "--queue", "job", "--yes"), "Did you mean 'jobs'?"),
    # confirmations
    (("discard", "1"), NO_TERMINAL),
    (("discard", "--queue", "jobs"), NO_TERMINAL),
    (("activate", "--queue", "jobs"), NO_TERMINAL),
    (("redrive", "jobs"), NO_TERMINAL),
    (("redrive", "empty", "--into", "jobs"), NO_TERMINAL),
    (("purge", "jobs", "--all"), NO_TERMINAL),
    (("purge", "empty", "--all"), NO_TERMINAL),
    (("cancel", "1"), NO_TERMINAL),
    (("release", "1"), NO_TERMINAL),
    (("vacuum", "--full"), NO_TERMINAL),
    # unknown queues
    *(
        ((command, "job", *options), "Did you mean 'jobs'?")
        for command, *options in (
            ("list",), ("errors",), ("peek",), ("tail",), ("tail", "--dead"), ("enqueue", "1"),
            ("redrive", "--yes"), ("purge", "--all", "--yes"), ("resume",),
        )
    ),
    (("pause", "jobs", "job"), "Did you mean 'jobs'?"),
    (("redrive", "jobs", "--into", "job", "--yes"), "Did you mean 'jobs'?"),
    # bytes that are not text
    *(
        ((*command, BYTES), NOT_TEXT)
        for command in (
            ("why",), ("show",), ("peek",), ("list",), ("list", "--search"), ("enqueue", "jobs"),
            ("backup",), ("pause", "jobs"), ("redrive", "jobs", "--reason"),
        )
    ),
]  # fmt: skip


def tables():
    return [list(model.objects.values()) for model in (Message, Queue, Subscription)]


@pytest.mark.parametrize(
    ("arguments", "error"), REJECTED, ids=lambda value: " ".join(map(str, value))[:60]
)
def test_invalid_argument_is_named_and_changes_nothing(queue, make_queue, arguments, error):
    make_queue("empty")
    dead_letter("jobs")
    before = tables()

    with pytest.raises(CommandError) as caught:
        mqlite(*arguments)

    assert error in str(caught.value)
    assert tables() == before


@pytest.mark.parametrize(
    ("database", "arguments", "code", "error"),
    [
        ("new.sqlite3", ["stats"], 1, "no such table: mqlite_meta (run `manage.py migrate`)"),
        ("missing/new.sqlite3", ["stats"], 1, "unable to open database file (the file is missing"),
        ("new.sqlite3", ["purge", "jobs", "--limit", "x"], 2, "Invalid number 'x'"),
    ],
)
def test_shell_gets_an_exit_code_and_no_traceback(tmp_path, database, arguments, code, error):
    process = subprocess.run(
        [sys.executable, "-m", "django", "mqlite", *arguments, "--settings", "tests.settings"],
        cwd=ROOT,
        env={**os.environ, "MQLITE_TEST_DATABASE": str(tmp_path / database)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert (process.returncode, process.stdout) == (code, "")
    assert error in process.stderr
    assert "Traceback" not in process.stderr
