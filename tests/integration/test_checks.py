"""System checks: each names what is wrong and the way out; a correct project passes them all."""

import re
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from django.core.checks import run_checks
from django.core.management import get_commands
from django.db import OperationalError, connection, connections

from django_mqlite import checks, deployment_checks, handlers
from django_mqlite.checks import PAGE
from django_mqlite.handlers import Handler
from django_mqlite.routers import MqliteRouter
from django_mqlite.store.sqlite import database_file
from tests.support.source import PACKAGE, ROOT

pytestmark = pytest.mark.django_db


def messages(databases=None) -> dict[str, object]:
    """Return the messages of the checks by id."""
    tags = ["mqlite", "database"] if databases else ["mqlite"]
    messages = [message for tag in tags for message in run_checks(tags=[tag], databases=databases)]
    return {message.id: message for message in messages if str(message.id).startswith("mqlite.")}


@pytest.fixture(autouse=True)
def flawless_sqlite(monkeypatch):
    """An SQLite without known bugs, whatever the tests run on."""
    monkeypatch.setattr(connection.Database, "sqlite_version_info", (3, 53, 0))


@pytest.fixture
def directory():
    return str(Path(connection.settings_dict["NAME"]).resolve().parent)


@pytest.fixture
def set_handler(monkeypatch):
    def set_handler(queue, **facts):
        by_queue = {queue: Handler(queue=queue, function=print, **facts)}
        monkeypatch.setattr(handlers, "_handlers", by_queue)

    return set_handler


def test_correct_project_passes_every_check():
    assert messages(databases=["default"]) == {}


# Settings


@pytest.mark.parametrize(
    ("setting", "id", "text"),
    [
        ({"QUEUE": {}}, "mqlite.E001", "did you mean"),
        ({"QUEUES": {"jobs": {"lock_duraton": 5}}}, "mqlite.E001", "did you mean"),
        ({"DATABASE": "queue"}, "mqlite.E001", "not an alias of DATABASES"),
        ({"HANDLERS": ["no_such_module"]}, "mqlite.W013", "no_such_module"),
    ],
    ids=str,
)
def test_invalid_setting_is_reported(settings, setting, id, text):
    settings.MQLITE = setting

    (message,) = messages(databases=["default"] if id == "mqlite.W013" else None).values()

    assert message.id == id
    assert text in message.msg


def test_every_mistake_of_the_setting_is_a_message(settings):
    settings.MQLITE = {"QUEUE": {}, "MAX_BODY_BYTES": 0}

    errors = [message for message in run_checks(tags=["mqlite"]) if message.id == "mqlite.E001"]

    assert len(errors) == 2


def test_database_that_the_routers_do_not_choose_is_reported(settings, monkeypatch):
    monkeypatch.setitem(
        connections.settings, "queue", {**connection.settings_dict, "NAME": ":memory:"}
    )
    settings.MQLITE = {"DATABASE": "queue"}

    assert "'queue'" in messages()["mqlite.W005"].msg


def test_router_migrates_nothing_while_the_setting_is_invalid(settings):
    """The checks of models ask the router, and then the mistakes are reported."""
    settings.MQLITE = {"DATABASE": "nowhere"}
    router = MqliteRouter()

    assert router.allow_migrate("default", "django_mqlite") is False
    assert router.allow_migrate("default", "auth") is None


OPTIONS = [
    ({"transaction_mode": None}, False, "mqlite.W002"),
    ({"transaction_mode": "DEFERRED"}, False, "mqlite.W002"),
    ({"transaction_mode": "DEFERRED"}, True, "mqlite.W002"),
    ({"transaction_mode": "IMMEDIATE"}, True, "mqlite.W006"),
    ({"transaction_mode": "IMMEDIATE"}, False, None),
    ({"timeout": 0}, False, "mqlite.W007"),
    ({"timeout": 1.9}, False, "mqlite.W007"),
    ({"timeout": 2}, False, None),
]


@pytest.mark.parametrize(("options", "atomic_requests", "id"), OPTIONS, ids=str)
def test_risky_database_options_are_reported(monkeypatch, options, atomic_requests, id):
    all_options = connection.settings_dict["OPTIONS"] | options
    monkeypatch.setitem(connection.settings_dict, "OPTIONS", all_options)
    monkeypatch.setitem(connection.settings_dict, "ATOMIC_REQUESTS", atomic_requests)

    assert list(messages()) == ([id] if id else [])


@pytest.mark.parametrize(
    ("facts", "is_reported"),
    [
        ({"atomic": True, "timeout_ms": 5_000}, True),
        ({"atomic": True, "timeout_ms": 4_999}, False),
        ({"atomic": True}, False),
        ({"atomic": False, "timeout_ms": 5_000}, False),
    ],
    ids=str,
)
def test_atomic_handler_with_a_timeout_beyond_its_lease_is_reported(
    settings, set_handler, make_queue, facts, is_reported
):
    settings.MQLITE = {"QUEUES": {"stock": {"lock_duration": 5}}}
    make_queue("stock", lock_duration=5)
    set_handler("stock", **facts)

    assert list(messages()) == ["mqlite.W011"] * is_reported


def test_handler_of_a_missing_queue_is_reported_with_a_suggestion(
    settings, set_handler, make_queue
):
    settings.MQLITE = {"QUEUES": {"emails": {}}}
    set_handler("emials")

    text = messages(databases=["default"])["mqlite.W004"].msg

    assert "emials" in text
    assert "did you mean 'emails'?" in text
    make_queue("emials")
    make_queue("emails")
    assert messages(databases=["default"]) == {}


# The database


@pytest.mark.parametrize(
    ("version", "id"),
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
def test_sqlite_that_is_too_old_or_has_the_wal_bug_is_reported(monkeypatch, version, id):
    monkeypatch.setattr(connection.Database, "sqlite_version_info", version)

    texts = {message.id: message.msg for message in messages().values()}

    assert set(texts) == ({id} if id else set())
    assert all(".".join(map(str, version)) in text for text in texts.values())


def test_database_of_another_vendor_is_reported(monkeypatch):
    monkeypatch.setattr(connections["default"], "vendor", "postgresql")

    (message,) = messages(databases=["default"]).values()

    assert message.id == "mqlite.E002"
    assert "postgresql" in message.msg


def test_journal_other_than_wal_is_reported():
    class Cursor:
        __enter__ = lambda self: self  # noqa: E731
        __exit__ = lambda self, *_: False  # noqa: E731
        execute = lambda self, sql: self  # noqa: E731
        fetchall = lambda self: [("delete",)]  # noqa: E731

    (warning,) = checks._check_journal_mode(SimpleNamespace(alias="default", cursor=Cursor))

    assert warning.id == "mqlite.W003"
    assert "delete" in warning.msg


def test_database_that_cannot_be_opened_is_reported(monkeypatch):
    def fail(*_):
        raise OperationalError("unable to open database file")

    monkeypatch.setattr(checks, "_check_journal_mode", fail)

    assert "unable to open" in messages(databases=["default"])["mqlite.E004"].msg


@pytest.mark.parametrize("synchronous", [0, 1, 2, 3])
def test_synchronous_off_is_reported(monkeypatch, synchronous):
    facts = database_file.file_facts(connection)._replace(synchronous=synchronous)
    monkeypatch.setattr(database_file, "file_facts", lambda _: facts)

    assert list(messages(databases=["default"])) == ["mqlite.W008"] * (synchronous == 0)


@pytest.mark.parametrize("kind", ["nfs4", "cifs", "fuse.sshfs", "9p", None])
def test_network_file_system_of_the_database_is_reported(monkeypatch, directory, kind):
    """Other mounts do not matter; where mounts are unknown, nothing is reported."""
    mounts = {"/": "nfs4", directory: kind or "ext4", f"{directory}/beside": "cifs"}
    partitions = [SimpleNamespace(mountpoint=path, fstype=mounts[path]) for path in mounts]
    monkeypatch.setattr(psutil, "disk_partitions", lambda **_: partitions)

    texts = {message.id: message.msg for message in messages().values()}

    assert list(texts) == ["mqlite.W009"] * bool(kind)
    assert not kind or kind in texts["mqlite.W009"]
    partitions.clear()
    assert messages() == {}


def test_directory_without_write_permission_is_reported(monkeypatch, directory):
    monkeypatch.setattr(
        deployment_checks.os, "access", lambda path, mode: Path(path) != Path(directory)
    )

    assert directory in messages()["mqlite.W010"].msg


def test_directory_that_does_not_exist_yet_is_accepted(monkeypatch):
    monkeypatch.setitem(connection.settings_dict, "NAME", "no/such/directory/db.sqlite3")

    assert messages() == {}


# Commands


@pytest.mark.parametrize(("first", "winner"), [(True, "channels"), (False, "django_mqlite")])
def test_command_of_another_app_is_reported_with_the_winner(
    settings, monkeypatch, tmp_path, first, winner
):
    """Django Channels has a command `runworker` too."""
    for package in ("", "management", "management/commands"):
        directory = tmp_path / "channels" / package
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "__init__.py").touch()
    (tmp_path / "channels/management/commands/runworker.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    others = settings.INSTALLED_APPS
    settings.INSTALLED_APPS = ["channels", *others] if first else [*others, "channels"]
    get_commands.cache_clear()

    warning = messages()["mqlite.W018"]

    get_commands.cache_clear()
    assert "django_mqlite and channels have the command 'runworker'" in warning.msg
    assert f"runs that of {winner}, which is listed first" in warning.msg
    assert "mqlite worker" in warning.hint


# Documentation


def test_each_check_has_a_paragraph_to_which_its_hint_leads(settings):
    sources = [path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py")]
    ids = re.findall(r'id="(mqlite\.[EW]\d{3})"', "".join(sources))
    headings = re.findall(r"^## (mqlite\.[EW]\d{3})$", (ROOT / PAGE).read_text(), re.MULTILINE)
    settings.MQLITE = {"QUEUE": {}}

    assert sorted(set(ids)) == sorted(headings)
    assert len(ids) >= 15
    hint = messages()["mqlite.E001"].hint
    assert hint.endswith("See django-mqlite's docs/checks.md#mqlitee001.")
