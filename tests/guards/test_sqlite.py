"""A lane must test the SQLite it says it tests."""

import sqlite3

import pytest
from django.db import connection

from tests.support import current_sqlite


@pytest.mark.django_db
def test_django_runs_on_the_sqlite_this_run_asked_for():
    with connection.cursor() as cursor:
        cursor.execute("SELECT sqlite_version()")
        (version,) = cursor.fetchone()

    assert version == sqlite3.sqlite_version
    if current_sqlite.REQUESTED:
        assert tuple(map(int, version.split("."))) >= current_sqlite.OLDEST_CURRENT
