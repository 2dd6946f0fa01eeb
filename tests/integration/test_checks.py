"""System checks: each says what is wrong, with a way out; a project in order hears nothing."""

import re
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from django.core.checks import run_checks
from django.db import OperationalError, connection, connections

from django_mqlite import checks, deployment_checks, handlers
from django_mqlite.checks import PAGE
from django_mqlite.handlers import Handler
from django_mqlite.store.sqlite import database_file
from tests.support.source import PACKAGE, ROOT

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

    said = found(databases=["default"])

    assert set(said) == {"mqlite.E002"}
    assert "postgresql" in said["mqlite.E002"].msg


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
    options = connection.settings_dict["OPTIONS"] | {"transaction_mode": mode}
    monkeypatch.setitem(connection.settings_dict, "OPTIONS", options)

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


def handles(monkeypatch, queue, **facts):
    monkeypatch.setattr(
        handlers, "_handlers", {queue: Handler(queue=queue, function=print, **facts)}
    )


def test_a_handler_of_a_queue_that_is_not_there_is_warned_of(settings, monkeypatch):
    settings.MQLITE = {"QUEUES": {"emails": {}}}
    handles(monkeypatch, "emials")

    said = found(databases=["default"])["mqlite.W004"].msg

    assert "emials" in said
    assert "did you mean 'emails'?" in said


def test_handler_of_a_created_undeclared_queue_passes_the_checks(settings, monkeypatch, make_queue):
    settings.MQLITE = {"QUEUES": {"emails": {}}}
    make_queue("made-by-hand")
    handles(monkeypatch, "made-by-hand")

    assert found(databases=["default"]) == {}


def test_a_database_that_cannot_be_opened_is_an_error(monkeypatch):
    def fail(*_):
        raise OperationalError("unable to open database file")

    monkeypatch.setattr(checks, "_check_journal_mode", fail)

    assert "unable to open" in found(databases=["default"])["mqlite.E004"].msg


@pytest.mark.parametrize(
    ("mode", "atomic", "expected"),
    [
        ("IMMEDIATE", True, {"mqlite.W006"}),
        ("IMMEDIATE", False, set()),
        ("DEFERRED", True, {"mqlite.W002"}),
    ],
)
def test_atomic_requests_with_immediate_transactions_are_warned_of(
    monkeypatch, mode, atomic, expected
):
    options = connection.settings_dict["OPTIONS"] | {"transaction_mode": mode}
    monkeypatch.setitem(connection.settings_dict, "OPTIONS", options)
    monkeypatch.setitem(connection.settings_dict, "ATOMIC_REQUESTS", atomic)

    assert set(found()) == expected


@pytest.mark.parametrize(
    ("timeout", "expected"), [(0, {"mqlite.W007"}), (1.9, {"mqlite.W007"}), (2, set())]
)
def test_a_short_timeout_is_warned_of(monkeypatch, timeout, expected):
    options = connection.settings_dict["OPTIONS"] | {"timeout": timeout}
    monkeypatch.setitem(connection.settings_dict, "OPTIONS", options)

    assert set(found()) == expected


@pytest.mark.parametrize(
    ("synchronous", "expected"), [(0, {"mqlite.W008"}), (1, set()), (2, set()), (3, set())]
)
def test_synchronous_off_is_warned_of(monkeypatch, synchronous, expected):
    facts = database_file.file_facts(connection)._replace(synchronous=synchronous)
    monkeypatch.setattr(database_file, "file_facts", lambda _: facts)

    assert set(found(databases=["default"])) == expected


def mounts(monkeypatch, **kinds):
    partitions = [SimpleNamespace(mountpoint=path, fstype=kind) for path, kind in kinds.items()]
    monkeypatch.setattr(psutil, "disk_partitions", lambda **_: partitions)


@pytest.mark.parametrize("kind", ["nfs4", "cifs", "fuse.sshfs", "9p"])
def test_a_network_file_system_is_warned_of(monkeypatch, kind):
    directory = str(Path(connection.settings_dict["NAME"]).resolve().parent)
    mounts(monkeypatch, **{"/": "ext4", directory: kind})

    assert kind in found()["mqlite.W009"].msg


def test_a_network_file_system_elsewhere_concerns_nobody(monkeypatch):
    directory = Path(connection.settings_dict["NAME"]).resolve().parent
    mounts(monkeypatch, **{"/": "nfs4", str(directory): "ext4", f"{directory}/beside": "cifs"})

    assert found() == {}


def test_where_mounts_cannot_be_told_nothing_is_said(monkeypatch):
    mounts(monkeypatch)

    assert found() == {}


def test_a_directory_that_cannot_be_written_is_warned_of(monkeypatch):
    directory = Path(connection.settings_dict["NAME"]).resolve().parent
    monkeypatch.setattr(deployment_checks.os, "access", lambda path, mode: Path(path) != directory)

    assert str(directory) in found()["mqlite.W010"].msg


def test_a_directory_that_is_not_there_yet_is_no_matter_of_a_build(monkeypatch):
    monkeypatch.setitem(connection.settings_dict, "NAME", "no/such/directory/db.sqlite3")

    assert found() == {}


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({"atomic": True, "timeout_ms": 5_000}, {"mqlite.W011"}),
        ({"atomic": True, "timeout_ms": 4_999}, set()),
        ({"atomic": True}, set()),
        ({"atomic": False, "timeout_ms": 5_000}, set()),
    ],
    ids=str,
)
def test_an_atomic_handler_that_may_outlast_its_lease_is_warned_of(
    settings, monkeypatch, facts, expected
):
    settings.MQLITE = {"QUEUES": {"stock": {"lock_duration": 5}}}
    handles(monkeypatch, "stock", **facts)

    assert set(found()) == expected


def test_handlers_that_cannot_be_imported_are_one_warning_and_no_crash(settings):
    settings.MQLITE = {"HANDLERS": ["no_such_module"]}

    said = found(databases=["default"])

    assert set(said) == {"mqlite.W013"}
    assert "no_such_module" in said["mqlite.W013"].msg


def test_each_check_leads_to_its_paragraph(settings):
    sources = [path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py")]
    ids = re.findall(r'id="(mqlite\.[EW]\d{3})"', "".join(sources))
    headings = re.findall(r"^## (mqlite\.[EW]\d{3})$", (ROOT / PAGE).read_text(), re.MULTILINE)
    settings.MQLITE = {"QUEUE": {}}

    assert sorted(set(ids)) == sorted(headings)
    assert len(ids) >= 15
    assert found()["mqlite.E001"].hint.endswith("See django-mqlite's docs/checks.md#mqlitee001.")


def test_a_database_named_without_its_router_is_warned_of(settings):
    settings.MQLITE = {"DATABASE": "queue"}

    assert set(found()) == {"mqlite.W005"}
