"""Migrate forwards and backwards, flush and sync."""

import os
import subprocess
import sys

import pytest
from django.core.management import call_command
from django.db import connection
from django.db.migrations.loader import MigrationLoader
from django.test import override_settings

from django_mqlite import enqueue
from django_mqlite.models import Message, Queue
from tests.support.schema import GOLDEN, schema_of
from tests.support.source import ROOT

COMMITTED = pytest.mark.django_db(transaction=True)


def mqlite_objects():
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT type || ' ' || name FROM sqlite_master"
            " WHERE name LIKE '%mqlite%' OR tbl_name LIKE '%mqlite%'"
        )
        return sorted(name for (name,) in cursor.fetchall())


def permissions():
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT codename FROM auth_permission JOIN django_content_type AS kind"
            " ON kind.id = content_type_id WHERE app_label = 'django_mqlite'"
        )
        return {codename for (codename,) in cursor.fetchall()}


@pytest.fixture
def migrated_again(transactional_db):
    """Restore the schema after the test."""
    yield
    call_command("migrate", verbosity=0)


@pytest.mark.django_db
def test_models_need_no_further_migration(capsys):
    call_command("makemigrations", "--check", "--dry-run", verbosity=1)

    assert "No changes detected" in capsys.readouterr().out


@pytest.mark.django_db
def test_migrations_have_one_leaf():
    loader = MigrationLoader(connection)

    assert loader.detect_conflicts() == {}
    assert loader.graph.leaf_nodes("django_mqlite") == [("django_mqlite", "0001_initial")]


@COMMITTED
def test_migration_is_reversible(migrated_again, settings):
    settings.MQLITE = {"QUEUES": {"declared": {}}}
    call_command("migrate", verbosity=0)
    enqueue("declared", None, group_id="g")
    enqueue("declared", None, group_id="g")

    call_command("migrate", "django_mqlite", "zero", verbosity=0)
    assert mqlite_objects() == []

    call_command("migrate", "django_mqlite", verbosity=0)
    assert schema_of(connection) == GOLDEN.read_text(encoding="utf-8")
    assert list(Queue.objects.values_list("name", flat=True)) == ["declared"]
    assert not Message.objects.exists()


@COMMITTED
def test_failed_migration_changes_nothing(migrated_again):
    call_command("migrate", "django_mqlite", "zero", verbosity=0)
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE mqlite_access_keys (in_the_way INTEGER)")

    with pytest.raises(Exception, match="mqlite_access_keys"):
        call_command("migrate", "django_mqlite", verbosity=0)

    assert mqlite_objects() == ["table mqlite_access_keys"]
    with connection.cursor() as cursor:
        cursor.execute("DROP TABLE mqlite_access_keys")


class NoMigrations:
    """MIGRATION_MODULES of pytest-django's --nomigrations."""

    def __contains__(self, label):
        return True

    def __getitem__(self, label):
        return None


@COMMITTED
@pytest.mark.parametrize(
    "modules", [{"django_mqlite": None}, NoMigrations()], ids=["one app", "every app"]
)
def test_migrate_without_migrations_creates_same_schema(migrated_again, settings, modules):
    call_command("migrate", "django_mqlite", "zero", verbosity=0)
    settings.MQLITE = {"QUEUES": {"declared": {}}}

    with override_settings(MIGRATION_MODULES=modules):
        call_command("migrate", run_syncdb=True, verbosity=0)
        call_command("migrate", run_syncdb=True, verbosity=0)

    assert schema_of(connection) == GOLDEN.read_text(encoding="utf-8")
    assert list(Queue.objects.values_list("name", flat=True)) == ["declared"]
    call_command("migrate", "django_mqlite", fake=True, verbosity=0)


def test_nomigrations_of_pytest_creates_same_schema():
    """Runs in another process, which creates its own databases."""
    environment = {name: value for name, value in os.environ.items() if "MQLITE_TEST_D" not in name}
    command = [sys.executable, "-m", "pytest", "-q", "--nomigrations", "-p", "no:cacheprovider"]
    tests = ["tests/migrations/test_schema.py", "-k", "golden"]

    done = subprocess.run(
        [*command, *tests], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stdout


@COMMITTED
def test_migrate_creates_declared_queues_and_keeps_others(settings):
    Queue.objects.create_queue("own", lock_duration=7)
    settings.MQLITE = {"QUEUES": {"declared": {"lock_duration": 5}}}

    call_command("migrate", verbosity=0)

    assert dict(Queue.objects.values_list("name", "lock_duration_ms")) == {
        "own": 7_000,
        "declared": 5_000,
    }


@COMMITTED
def test_flush_keeps_only_the_declared_queues(settings):
    settings.MQLITE = {"QUEUES": {"declared": {}}}
    call_command("migrate", verbosity=0)
    Queue.objects.create_queue("own")
    enqueue("own", None)
    enqueue("declared", None, group_id="g")
    enqueue("declared", None, group_id="g")

    call_command("flush", interactive=False, verbosity=0)

    assert list(Queue.objects.values_list("name", flat=True)) == ["declared"]
    assert not Message.objects.exists()
    assert schema_of(connection) == GOLDEN.read_text(encoding="utf-8")


@COMMITTED
def test_permissions_of_the_admin_exist():
    expected = {"redrive_message", "purge_message", "release_message", "pause_queue"}

    assert expected <= permissions()


@COMMITTED
def test_sqlmigrate_shows_eight_tables(capsys):
    call_command("sqlmigrate", "django_mqlite", "0001")

    out = capsys.readouterr().out
    assert out.count("CREATE TABLE mqlite_") == 8
    assert "BEGIN;" in out
