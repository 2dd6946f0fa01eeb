"""System checks: each says what is wrong, with a way out; a project in order hears nothing."""

from types import SimpleNamespace

import pytest
from django.core.checks import run_checks
from django.db import connection, connections

from django_mqlite import checks, handlers
from django_mqlite.handlers import Handler

pytestmark = pytest.mark.django_db


def found(databases=None) -> dict[str, object]:
    messages = run_checks(tags=["mqlite"], databases=databases)
    messages += run_checks(tags=["database"], databases=databases) if databases else []
    return {each.id: each for each in messages if str(each.id).startswith("mqlite.")}


@pytest.fixture(autouse=True)
def flawless_sqlite(monkeypatch):
    """Whatever SQLite the tests run on, it has no bug unless the test says so."""
    monkeypatch.setattr(connection.Database, "sqlite_version_info", (3, 53, 0))


def test_a_project_in_order_hears_nothing():
    assert found(databases=["default"]) == {}


@pytest.mark.parametrize("wrong", [{"QUEUE": {}}, {"QUEUES": {"jobs": {"lock_duraton": 5}}}])
def test_a_setting_that_cannot_be_read_is_an_error(settings, wrong):
    settings.MQLITE = wrong

    assert "did you mean" in found()["mqlite.E001"].msg


def test_another_database_than_sqlite_is_an_error(monkeypatch):
    monkeypatch.setattr(connections["default"], "vendor", "postgresql")

    assert "postgresql" in found()["mqlite.E002"].msg


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ((3, 36, 0), "mqlite.E003"),
        ((3, 37, 0), "mqlite.W001"),
        ((3, 40, 1), "mqlite.W001"),
        ((3, 44, 6), None),
        ((3, 50, 7), None),
        ((3, 51, 2), "mqlite.W001"),
        ((3, 51, 3), None),
        ((3, 52, 0), "mqlite.W001"),
        ((3, 53, 0), None),
    ],
)
def test_an_sqlite_that_is_too_old_or_has_the_wal_reset_bug_is_named(
    monkeypatch, version, expected
):
    monkeypatch.setattr(connection.Database, "sqlite_version_info", version)

    messages = found()

    assert set(messages) == ({expected} if expected else set())
    if expected:
        assert ".".join(map(str, version)) in messages[expected].msg


@pytest.mark.parametrize("mode", [None, "DEFERRED"])
def test_transactions_that_do_not_begin_immediate_are_warned_of(monkeypatch, mode):
    options = dict(connection.settings_dict["OPTIONS"])
    options.pop("transaction_mode")
    monkeypatch.setitem(
        connection.settings_dict, "OPTIONS", options | ({"transaction_mode": mode} if mode else {})
    )

    assert set(found()) == {"mqlite.W002"}


def test_a_journal_other_than_wal_is_warned_of(monkeypatch):
    cursor = SimpleNamespace(execute=lambda sql: SimpleNamespace(fetchall=lambda: [("delete",)]))

    class FakeCursor:
        def __enter__(self):
            return cursor

        def __exit__(self, *_):
            return False

    fake = SimpleNamespace(alias="default", cursor=FakeCursor)

    (warning,) = checks._check_journal_mode(fake)

    assert (warning.id, "delete" in warning.msg) == ("mqlite.W003", True)


def test_a_handler_of_a_queue_that_is_not_declared_is_warned_of(settings, monkeypatch):
    settings.MQLITE = {"QUEUES": {"emails": {}}}
    handler = Handler(queue="emials", function=print)
    monkeypatch.setattr(handlers, "_handlers", {"emials": handler})

    assert "emials" in found(databases=["default"])["mqlite.W004"].msg


def test_a_database_named_without_its_router_is_warned_of(settings):
    settings.MQLITE = {"DATABASE": "queue"}

    assert set(found()) == {"mqlite.W005"}
