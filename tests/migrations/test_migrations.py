"""Forwards, backwards, flushed, synced."""

import pytest
from django.core.management import call_command
from django.db import connection
from django.db.migrations.executor import MigrationExecutor
from django.db.migrations.loader import MigrationLoader

from django_mqlite import enqueue
from django_mqlite.models import Message, Queue
from tests.support.schema import GOLDEN, schema_of

COMMITTED = pytest.mark.django_db(transaction=True)


def everything_of_ours():
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
    """Whatever the test leaves, the next one finds the whole schema."""
    yield
    call_command("migrate", verbosity=0)


@pytest.mark.django_db
def test_the_migrations_say_all_that_the_models_say(capsys):
    call_command("makemigrations", "--check", "--dry-run", verbosity=1)

    assert "No changes detected" in capsys.readouterr().out


@pytest.mark.django_db
def test_the_models_are_on_one_line_of_migrations():
    loader = MigrationLoader(connection)

    assert loader.detect_conflicts() == {}
    assert loader.graph.leaf_nodes("django_mqlite") == [("django_mqlite", "0001_initial")]


@COMMITTED
def test_backwards_leaves_nothing_and_forwards_again_all(migrated_again, settings):
    settings.MQLITE = {"QUEUES": {"declared": {}}}
    call_command("migrate", verbosity=0)
    enqueue("declared", None, group_id="g")
    enqueue("declared", None, group_id="g")

    call_command("migrate", "django_mqlite", "zero", verbosity=0)
    assert everything_of_ours() == []

    call_command("migrate", "django_mqlite", verbosity=0)
    assert schema_of(connection) == GOLDEN.read_text(encoding="utf-8")
    assert list(Queue.objects.values_list("name", flat=True)) == ["declared"]
    assert not Message.objects.exists()


@COMMITTED
def test_forwards_is_one_transaction(migrated_again):
    call_command("migrate", "django_mqlite", "zero", verbosity=0)
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE mqlite_access_keys (in_the_way INTEGER)")

    with pytest.raises(Exception, match="mqlite_access_keys"):
        call_command("migrate", "django_mqlite", verbosity=0)

    assert everything_of_ours() == ["table mqlite_access_keys"]
    with connection.cursor() as cursor:
        cursor.execute("DROP TABLE mqlite_access_keys")


@COMMITTED
def test_migrating_brings_the_declared_queues_and_keeps_the_others(settings):
    Queue.objects.create_queue("own", lock_duration=7)
    settings.MQLITE = {"QUEUES": {"declared": {"lock_duration": 5}}}

    call_command("migrate", verbosity=0)

    assert dict(Queue.objects.values_list("name", "lock_duration_ms")) == {
        "own": 7_000,
        "declared": 5_000,
    }


@COMMITTED
def test_a_flush_keeps_the_declared_queues_and_nothing_else(settings):
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
@pytest.mark.parametrize(
    "codename", ["redrive_message", "purge_message", "release_message", "pause_queue"]
)
def test_the_admins_own_permissions_are_there(codename):
    assert codename in permissions()


@pytest.mark.django_db
def test_the_initial_migration_is_applied_and_nothing_is_left_to_do():
    executor = MigrationExecutor(connection)

    assert executor.migration_plan(executor.loader.graph.leaf_nodes()) == []
    assert ("django_mqlite", "0001_initial") in executor.loader.applied_migrations


@COMMITTED
def test_sqlmigrate_shows_the_eight_tables(capsys):
    call_command("sqlmigrate", "django_mqlite", "0001")

    out = capsys.readouterr().out
    assert out.count("CREATE TABLE mqlite_") == 8
    assert "BEGIN;" in out
