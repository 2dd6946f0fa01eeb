"""Databases of the engine, also if the suite runs on Django's own."""

from contextlib import ExitStack

import pytest

from tests.support.engines import database, execute


@pytest.fixture(autouse=True)
def _unblocked(django_db_blocker):
    with django_db_blocker.unblock():
        yield


@pytest.fixture
def open_database(tmp_path):
    """Open databases by alias, by default in files, and close them at the end."""
    with ExitStack() as stack:

        def open_database(alias="engine", name=None, **options):
            path = name or tmp_path / f"{alias}.sqlite3"
            return stack.enter_context(database(alias, path, **options))

        yield open_database


@pytest.fixture
def engine(open_database):
    """A database file with a table `t` of one column and a long timeout."""
    connection = open_database(timeout=60)
    execute(connection, "CREATE TABLE t (a)")
    return connection
