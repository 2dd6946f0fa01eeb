"""NAME in its forms, relative, a URI, a link, a second alias: all of them mean one file."""

import os
from pathlib import Path

import pytest
from django.core.checks import run_checks
from django.db import connection, connections

from django_mqlite.doorbell import doorbell_path
from django_mqlite.verbs.database_file import storage
from tests.settings import OWN_ENGINE
from tests.support import engines
from tests.support.source import ROOT
from tests.support.unruly_app import UNRULY
from tests.support.waiting import wait_until
from tests.support.workers import ALIAS


def linked(path: Path) -> str:
    link = path.with_name("link.sqlite3")
    link.symlink_to(path)
    return str(link)


FORMS = {
    "absolute": str,
    "relative": lambda path: os.path.relpath(path, ROOT),
    "URI": lambda path: f"file:{path}?mode=rwc",
    "relative URI": lambda path: f"file:{os.path.relpath(path, ROOT)}?mode=rwc",
    "link": linked,
}

each_form = pytest.mark.parametrize("form", FORMS)


# A handler that changes the directory


@pytest.mark.parametrize("engine", [OWN_ENGINE, "django.db.backends.sqlite3"])
@pytest.mark.parametrize("start", ["--threads=2", "--processes=2"])
@pytest.mark.parametrize("form", ["relative", "relative URI"])
def test_a_worker_keeps_its_file_whatever_directory_a_handler_goes_to(
    database, form, start, engine
):
    environment = {
        **UNRULY,
        "MQLITE_TEST_ENGINE": engine,
        "MQLITE_TEST_DATABASE": FORMS[form](database.path),
    }
    database.queue("wanders")
    for _ in range(2):
        database.enqueue("wanders", str(database.beside))
    worker = database.start(start, "--queues=wanders,jobs", **environment)
    wait_until(lambda: database.left() == 0, "both handlers to end")

    database.enqueue_many("jobs", 4)  # for threads that have connected to nothing yet
    wait_until(lambda: database.left() == 0, "the messages to be handled")

    assert len(database.effects()) == 4
    worker.terminate()
    assert worker.ended_well()
    assert "failed" not in worker.output
    assert not list(database.beside.glob("*.sqlite3"))


# What is told of it


@pytest.fixture
def named(database, monkeypatch):
    """Give the alias of the workers this NAME."""
    database.enqueue("jobs")
    monkeypatch.chdir(ROOT)

    def named(form):
        database.close()
        monkeypatch.setitem(connections[ALIAS].settings_dict, "NAME", FORMS[form](database.path))
        return database

    return named


@each_form
def test_the_file_and_its_log_are_found(named, form):
    database = named(form)
    database.enqueue("jobs")

    found = storage(ALIAS)

    assert found.path.samefile(database.path)
    assert found.wal_size > 0
    assert doorbell_path(ALIAS) == database.path.with_name("queue.sqlite3-doorbell")


# Two aliases


def warnings() -> list[str]:
    return [found.msg for found in run_checks(tags=["mqlite"]) if found.id == "mqlite.W014"]


@pytest.mark.django_db
@each_form
def test_a_second_alias_of_the_queues_file_is_warned_of(form, tmp_path, monkeypatch):
    path = tmp_path / "queue.sqlite3"
    path.touch()
    monkeypatch.chdir(ROOT)
    monkeypatch.setitem(connection.settings_dict, "NAME", str(path))

    with engines.database("second", FORMS[form](path)):
        (told,) = warnings()

    assert "'default' and 'second' are the same file" in told


@pytest.mark.django_db
@pytest.mark.parametrize("name", [":memory:", "other.sqlite3", "file:memory?mode=memory"])
def test_a_second_alias_of_another_database_is_not_warned_of(name, tmp_path):
    with engines.database("second", name if ":" in name else tmp_path / name):
        assert warnings() == []
