"""With --database the checks look at that database, and not at the one that the routers name."""

import shutil

import pytest

SETTINGS = """
from tests.support.worker_settings import *

DATABASES["other"] = DATABASES["default"] | {{"NAME": {other!r}}}
DATABASES[{careless!r}]["OPTIONS"] = {{
    **DATABASES[{careless!r}]["OPTIONS"], "timeout": 1, "init_command": "PRAGMA synchronous=OFF"
}}
"""
COMMANDS = [
    (["runworker", "--burst"], {"mqlite.W007"}),
    (["runreaper", "--once"], {"mqlite.W007"}),
    (["mqlite", "doctor", "--quick"], {"mqlite.W007", "mqlite.W008"}),
]


@pytest.mark.parametrize("careless", ["default", "other"])
@pytest.mark.parametrize(("command", "expected"), COMMANDS, ids=["worker", "reaper", "doctor"])
def test_the_database_that_is_named_is_checked_and_no_other(
    database, migrated_file, tmp_path, command, expected, careless
):
    other = shutil.copy(migrated_file, tmp_path / "other.sqlite3")
    settings = SETTINGS.format(other=str(other), careless=careless)
    (tmp_path / "two_databases.py").write_text(settings)
    environment = {"PYTHONPATH": str(tmp_path), "DJANGO_SETTINGS_MODULE": "two_databases"}

    for alias in ("default", "other"):
        checked = database.run(*command, "--database", alias, **environment)

        assert checked.exit_code() == 0, checked.output
        said = {id for id in ("mqlite.W007", "mqlite.W008") if id in checked.output}
        assert said == (expected if alias == careless else set())
