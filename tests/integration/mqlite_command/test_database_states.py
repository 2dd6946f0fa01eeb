"""mqlite with a database that is empty, read-only or locked."""

import sqlite3
from contextlib import closing

import pytest
from django.core.management import CommandError
from django.db import connection

from django_mqlite.models import DeadLetter
from tests.support.verbs import dead_letter

from .calls import answer, mqlite


def execute(sql):
    with connection.cursor() as cursor:
        cursor.execute(sql)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["stats"], "There are no queues."),
        (["errors"], "There are no dead letters."),
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
def test_empty_database_is_no_error(db, arguments, text):
    for table in ("mqlite_messages", "mqlite_queues", "sqlite_sequence"):
        execute(f"DELETE FROM {table}")

    assert text in mqlite(*arguments)
    assert answer(*arguments)


@pytest.mark.parametrize(
    "command", [("redrive", "jobs", "--yes"), ("purge", "jobs", "--all", "--yes")], ids=" ".join
)
def test_read_only_database_keeps_dead_letters(queue, command):
    dead_letter("jobs")
    execute("PRAGMA query_only = 1")

    try:
        with pytest.raises(CommandError, match=r"readonly database .*cannot be written"):
            mqlite(*command)
    finally:
        execute("PRAGMA query_only = 0")

    assert DeadLetter.objects.count() == 1


@pytest.mark.django_db(transaction=True)
def test_locked_database_can_be_inspected_but_not_changed(queue):
    dead_letter("jobs")
    execute("PRAGMA busy_timeout = 10")

    path = connection.settings_dict["NAME"]
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        assert answer("stats")["queues"][0]["counts"]["dead_lettered"] == 1
        with pytest.raises(CommandError, match=r"database is locked .*another writer"):
            mqlite("redrive", "jobs", "--yes")
        other.rollback()
    connection.close()

    assert DeadLetter.objects.count() == 1
