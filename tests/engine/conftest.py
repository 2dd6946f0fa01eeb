"""Databases of the engine, whatever engine the suite runs on."""

import pytest

from tests.support.engines import database, execute


@pytest.fixture(autouse=True)
def _unblocked(django_db_blocker):
    with django_db_blocker.unblock():
        yield


@pytest.fixture
def open_database(tmp_path):
    """Opens databases by alias, files unless they are given another name; closes them."""
    entered = []

    def enter(alias="engine", name=None, **options):
        context = database(alias, name or tmp_path / f"{alias}.sqlite3", **options)
        connection = context.__enter__()
        entered.append(context)
        return connection

    yield enter
    for context in reversed(entered):
        context.__exit__(None, None, None)


@pytest.fixture
def engine(open_database):
    """A file with a table `t` of one column and a long timeout."""
    connection = open_database(timeout=60)
    execute(connection, "CREATE TABLE t (a)")
    return connection
