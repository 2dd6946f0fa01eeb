"""11 Storage; the golden schema is in tests/migrations, the plans are in tests/plans."""

import pytest
from django.db import connection

from django_mqlite.conf import sqlite_options


@pytest.mark.rule("11.3")
@pytest.mark.django_db(transaction=True)
def test_sqlite_options_set_synchronous_full():
    assert connection.settings_dict["OPTIONS"] in ({}, sqlite_options())

    with connection.cursor() as cursor:
        cursor.execute("PRAGMA synchronous")
        assert cursor.fetchone() == (2,)
        cursor.execute("PRAGMA journal_mode")
        assert cursor.fetchone() == ("wal",)
