"""Checks, doctor and every starting worker report a schema that lacks something."""

import sqlite3
from contextlib import closing

import pytest
from django.core.checks import run_checks
from django.core.management import call_command
from django.db import connection

from django_mqlite import enqueue
from django_mqlite.doctor import diagnose
from django_mqlite.schema import schema_differences
from tests.migrations.test_additions import add
from tests.support.schema import schema_of
from tests.support.source import ROOT

pytestmark = pytest.mark.django_db


def every_object():
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT type, name FROM sqlite_master"
            " WHERE tbl_name LIKE 'mqlite!_%' ESCAPE '!' AND sql IS NOT NULL"
        )
        return cursor.fetchall()


def run(*statements):
    with connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


def rewrite(table, old, new):
    """Rebuild the table, with `new` instead of `old` in its definition."""
    with closing(sqlite3.connect(":memory:")) as driver:
        driver.executescript(schema_of(connection))
        run("PRAGMA legacy_alter_table = ON")
        (sql,) = driver.execute("SELECT sql FROM sqlite_master WHERE name = ?", [table]).fetchone()
        others = driver.execute(
            "SELECT sql FROM sqlite_master WHERE tbl_name = ? AND sql IS NOT NULL AND name != ?",
            [table, table],
        ).fetchall()
    assert old in sql
    run(f"DROP TABLE {table}", sql.replace(old, new), *(other for (other,) in others))


def test_missing_object_is_named():
    for kind, name in every_object():
        run("SAVEPOINT complete", f"DROP {kind} {name}")

        assert f"{kind} {name} is missing" in schema_differences(connection)

        run("ROLLBACK TO complete")
    assert schema_differences(connection) == []


CHANGES = {
    "column": ("mqlite_dedup", "    data_sha256 TEXT    NOT NULL,\n", "", "column data_sha256"),
    "type": ("mqlite_meta", "value      TEXT", "value      BLOB", "column value TEXT"),
    "not null": ("mqlite_meta", "TEXT    NOT NULL", "TEXT", "column value TEXT NOT NULL"),
    "default": ("mqlite_access_keys", "DEFAULT '{}'", "DEFAULT ''", "DEFAULT '{}'"),
    "check": ("mqlite_access_keys", " CHECK (length(digest) = 64)", "", "CHECK ( length ("),
    "unique": ("mqlite_access_keys", "NOT NULL UNIQUE", "NOT NULL", "UNIQUE (digest)"),
    "primary key": ("mqlite_meta", "PRIMARY KEY", "NOT NULL", "PRIMARY KEY part 1"),
    "strict": ("mqlite_meta", ") STRICT", ")", "lacks STRICT"),
    "without rowid": ("mqlite_dedup", "STRICT, WITHOUT ROWID", "STRICT", "lacks WITHOUT"),
    "foreign key": (
        "mqlite_dedup",
        " REFERENCES mqlite_queues (name) ON DELETE CASCADE",
        "",
        "queue REFERENCES mqlite_queues (name)",
    ),
    "reused ids": ("mqlite_messages", " AUTOINCREMENT", "", "lacks AUTOINCREMENT"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_change_of_a_table_is_named(change):
    table, old, new, text = CHANGES[change]
    rewrite(table, old, new)

    (difference, *_) = schema_differences(connection)

    assert difference.startswith(f"table {table} lacks ")
    assert text in difference


@pytest.mark.parametrize(
    ("kind", "name", "old", "new"),
    [
        ("index", "mqlite_messages_head", "CREATE UNIQUE INDEX", "CREATE INDEX"),
        ("index", "mqlite_messages_active", "priority DESC", "priority"),
        ("trigger", "mqlite_line_join", "NEW.blocked = 1", "NEW.blocked = 2"),
    ],
)
def test_changed_index_or_trigger_is_named(kind, name, old, new):
    with connection.cursor() as cursor:
        cursor.execute("SELECT sql FROM sqlite_master WHERE name = %s", [name])
        ((sql,),) = cursor.fetchall()
    assert old in sql
    run(f"DROP {kind} {name}", sql.replace(old, new))

    assert schema_differences(connection) == [f"{kind} {name} differs from its original definition"]


def test_additions_of_a_newer_release_are_no_differences():
    add(connection)
    run(
        "CREATE TRIGGER mqlite_later AFTER DELETE ON mqlite_queues BEGIN SELECT 1; END",
        "DROP TABLE mqlite_later",
    )

    assert schema_differences(connection) == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("value ", '"value" '),
        ("CREATE TABLE mqlite_meta", 'CREATE TABLE "mqlite_meta"'),
        ("value      TEXT    NOT NULL", "[value] text not null /* as a tool writes it */"),
        ("BETWEEN 0 AND", "between  0\n and"),
    ],
    ids=["quoted column", "quoted table", "case and comment", "white space"],
)
def test_table_in_another_notation_has_no_differences(old, new):
    rewrite("mqlite_meta", old, new)

    assert schema_differences(connection) == []


def test_database_before_its_first_migrate_has_no_differences():
    run(*(f"DROP TABLE {name}" for kind, name in every_object() if kind == "table"))

    assert schema_differences(connection) == []


def test_file_that_records_no_migrations_is_compared_with_all():
    run("DELETE FROM django_migrations", "DROP TRIGGER mqlite_line_join")

    assert schema_differences(connection) == ["trigger mqlite_line_join is missing"]


@pytest.mark.parametrize("command", ["runworker", "runreaper"])
def test_checks_doctor_and_commands_refuse_a_schema_without_a_trigger(queue, command):
    run("DROP TRIGGER mqlite_line_join")

    (error,) = [m for m in run_checks(databases=["default"]) if m.id == "mqlite.E010"]
    findings = {finding.id: finding for finding in diagnose("default").findings}

    assert "trigger mqlite_line_join is missing" in error.msg
    assert findings["mqlite.E010"].level == "error"
    with pytest.raises(Exception, match="mqlite_line_join is missing"):
        call_command(command)


def test_processes_do_not_start_on_a_schema_without_a_trigger(database):
    with database.other_program() as other:
        other.execute("DROP TRIGGER mqlite_line_join")

    worker = database.start("--burst", "--processes=2")

    assert worker.exit_code() != 0
    assert "mqlite_line_join is missing" in worker.output


def test_documented_repair_gives_every_line_a_head(group_queue):
    run("DROP TRIGGER mqlite_line_join")
    message = enqueue("groups", 1, group_id="a")
    page = (ROOT / "docs" / "checks.md").read_text(encoding="utf-8")
    repair = page.partition("## mqlite.E010")[2].partition("```sql")[2].partition("```")[0]

    run(repair)

    message.refresh_from_db()
    assert not message.blocked
