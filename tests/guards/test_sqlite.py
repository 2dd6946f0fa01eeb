"""The tests run on the SQLite that was requested."""

import sqlite3

import pytest
from django.db import connection

from tests.support import current_sqlite


@pytest.mark.django_db
def test_django_uses_the_requested_sqlite():
    with connection.cursor() as cursor:
        cursor.execute("SELECT sqlite_version()")
        (version,) = cursor.fetchone()

    assert version == sqlite3.sqlite_version
    if current_sqlite.REQUESTED:
        assert tuple(map(int, version.split("."))) >= current_sqlite.OLDEST_CURRENT
