"""What mqlite says when it cannot, and that nothing is lost by it."""

import os
import re
import sqlite3
import subprocess
import sys

import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from django_mqlite.models import DeadLetter
from tests.support.source import ROOT
from tests.support.verbs import dead_letter, state_of

from .calls import answer, mqlite


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "required: COMMAND"),
        (("stat",), "invalid choice: 'stat'"),
        (("peek",), "required: QUEUE"),
        (("peek", "jobs", "--limit", "0"), "Invalid number '0': use a whole number from 1"),
        (("peek", "jobs", "--limit", "many"), "Invalid number 'many': use a whole number"),
        (("peek", "jobs", "--limit", "9" * 19), "use a whole number from 1"),
        (("peek", "jobs", "--limit", "9" * 5_000), "use a whole number from 1"),
        (("peek", "jobs", "--limit", "²"), "Invalid number '²'"),
        (("redrive", "jobs", "--id"), "expected at least one argument"),
        (("redrive", "jobs", "--older-than", "soon"), "Invalid duration 'soon': use seconds"),
        (("redrive", "jobs", "--older-than", "0s"), "Invalid duration '0s': use at least 0.001 s"),
        (("redrive", "jobs", "--older-than", "nan"), "Invalid duration 'nan': use seconds"),
        (("redrive", "jobs", "--older-than", "-1h"), "expected one argument"),
        (("redrive", "jobs", "--older-than", "9" * 400), "at most 100 years"),
        (("redrive", "jobs", "--id", "1", "--limit", "1"), "--id and --limit cannot"),
        (
            ("purge", "jobs", "--yes"),
            "Nothing is selected: pass --id, --limit, --older",
        ),
        (("purge", "jobs", "--all", "--limit", "1", "--yes"), "--all selects every dead letter"),
        (("purge", "jobs", "--id", "1", "--all", "--yes"), "--id and --all cannot"),
        (("purge", "jobs", "--id", "0", "--yes"), "Invalid number '0': use a whole number from 1"),
        (("stats", "--database", "other"), "invalid choice: 'other'"),
        (("health", "--max-age", "9223372036854775807"), "at most 100 years"),
        (("backup", "b" * 400), "File name too long"),
        (("backup", os.fsdecode(b"b-\xff")), "lone surrogate"),
        (("pause", "jobs", os.fsdecode(b"j-\xff")), "lone surrogate"),
        (("resume", os.fsdecode(b"j-\xff")), "lone surrogate"),
        (("redrive", "jobs", "--reason", os.fsdecode(b"r-\xff")), "lone surrogate"),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, tuple) else None,
)
def test_a_bad_argument_is_named(queue, arguments, said):
    letter = dead_letter("jobs")

    with pytest.raises(CommandError) as caught:
        mqlite(*arguments)

    assert said in str(caught.value)
    assert state_of(letter) == "dead_lettered"


@pytest.mark.parametrize(
    "arguments",
    [("why",), ("show",), ("peek",), ("list",), ("list", "--search"), ("enqueue", "jobs")],
)
def test_bytes_that_are_no_text_are_told(queue, arguments):
    with pytest.raises(CommandError, match="an argument must not contain lone surrogates"):
        mqlite(*arguments, os.fsdecode(b"order-\xff"))


@pytest.mark.parametrize("command", [("peek",), ("redrive",), ("purge", "--all", "--yes")])
def test_an_unknown_queue_is_named_with_a_guess(queue, command):
    name, *rest = command

    with pytest.raises(CommandError, match=r"no queue 'job' .*Did you mean 'jobs'\?"):
        mqlite(name, "job", *rest)


@pytest.mark.parametrize(
    "command", [("redrive", "jobs"), ("purge", "jobs", "--all", "--yes")], ids=" ".join
)
def test_a_read_only_database_is_told_and_nothing_is_lost(queue, command):
    dead_letter("jobs")
    with connection.cursor() as cursor:
        cursor.execute("PRAGMA query_only = 1")

    try:
        with pytest.raises(CommandError, match=r"readonly database .*cannot be written"):
            mqlite(*command)
    finally:
        with connection.cursor() as cursor:
            cursor.execute("PRAGMA query_only = 0")

    assert DeadLetter.objects.count() == 1


@pytest.mark.django_db(transaction=True)
def test_a_locked_database_is_told_and_can_still_be_looked_at(queue):
    dead_letter("jobs")
    other = sqlite3.connect(connection.settings_dict["NAME"], isolation_level=None)
    with connection.cursor() as cursor:
        cursor.execute("PRAGMA busy_timeout = 10")
    other.execute("BEGIN IMMEDIATE")

    try:
        assert answer("stats")["queues"][0]["counts"]["dead_lettered"] == 1
        with pytest.raises(CommandError, match=r"database is locked .*another writer"):
            mqlite("redrive", "jobs")
    finally:
        other.rollback()
        other.close()
        connection.close()

    assert DeadLetter.objects.count() == 1


def empty_tables():
    with connection.cursor() as cursor:
        for table in ("mqlite_messages", "mqlite_queues", "sqlite_sequence"):
            cursor.execute(f"DELETE FROM {table}")


def shell(database, *arguments):
    return subprocess.run(
        [sys.executable, "-m", "django", "mqlite", *arguments, "--settings", "tests.settings"],
        cwd=ROOT,
        env={**os.environ, "MQLITE_TEST_DATABASE": str(database)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize(
    ("database", "arguments", "code", "said"),
    [
        ("new.sqlite3", ["stats"], 1, "no such table: mqlite_meta (run `manage.py migrate`)"),
        ("missing/new.sqlite3", ["stats"], 1, "unable to open database file (the file is missing"),
        (
            "new.sqlite3",
            ["purge", "jobs", "--limit", "x"],
            2,
            "Invalid number 'x': use a whole number",
        ),
    ],
)
def test_a_shell_gets_a_sentence_and_an_exit_code(tmp_path, database, arguments, code, said):
    done = shell(tmp_path / database, *arguments)

    assert done.returncode == code
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["stats"], "There are no queues."),
        (["list"], "There are no such messages."),
        (["list", "--state", "active"], "There are no such messages."),
        (["list", "--search", "x"], "There are no such messages."),
        (["why", "1"], "there has never been a message #1"),
        (["health"], "healthy"),
        (["doctor", "--quick"], "journal mode: wal"),
        (["subscribe", "orders", "stock"], "Queue stock subscribed to topic orders: every message"),
    ],
    ids=" ".join,
)
def test_an_empty_database_is_no_matter(db, arguments, said):
    empty_tables()

    assert said in mqlite(*arguments)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["show", "1"], "there has never been a message #1"),
        (["list", "jobs"], "no queue 'jobs'"),
        (["peek", "jobs"], "no queue 'jobs'"),
        (["tail", "jobs"], "no queue 'jobs'"),
        (["enqueue", "jobs", "1"], "no queue 'jobs'"),
        (["redrive", "jobs"], "no queue 'jobs'"),
        (["purge", "jobs", "--all", "--yes"], "no queue 'jobs'"),
        (["pause", "jobs"], "no queue 'jobs'"),
        (["resume", "jobs"], "no queue 'jobs'"),
    ],
    ids=" ".join,
)
def test_in_an_empty_database_a_queue_is_told_how_it_comes_to_be(db, arguments, said):
    empty_tables()

    with pytest.raises(CommandError) as caught:
        mqlite(*arguments)

    assert said in str(caught.value)


@pytest.mark.parametrize("command", ["cancel", "release", "run-now"])
def test_in_an_empty_database_there_is_no_message_to_steer(db, command, capsys):
    empty_tables()
    more = [] if command == "run-now" else ["--yes"]

    with pytest.raises(SystemExit) as ended:
        call_command("mqlite", command, "1", *more)

    assert ended.value.code == 1
    assert re.match(r"#1 not [a-z ]+: there has never been a message #1", capsys.readouterr().out)
