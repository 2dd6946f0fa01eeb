"""The engine can be loaded before the apps are ready, and imports only what it needs."""

import subprocess
import sys

from django_mqlite.sqlite3 import sqlite_in_use
from tests.support.engines import execute
from tests.support.source import ROOT

BEFORE_THE_APPS = """
import sys, warnings
from django.apps import apps
from django.conf import settings
from django.db import connections
settings.configure(
    DATABASES={"default": {"ENGINE": "django_mqlite.sqlite3", "NAME": ":memory:"}},
    INSTALLED_APPS=["django_mqlite"],
)
warnings.simplefilter("ignore")  # Django discourages such a query
with connections["default"].cursor() as cursor:
    assert cursor.execute("SELECT 1").fetchall() == [(1,)]
assert not apps.ready
assert "django_mqlite.models" not in sys.modules
import django
django.setup()
assert apps.ready
"""


def run_python(code):
    command = [sys.executable, "-c", code]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_engine_works_before_the_apps_are_ready():
    process = run_python(BEFORE_THE_APPS)

    assert (process.returncode, process.stderr) == (0, "")


def test_sqlite_in_use_returns_the_version_of_the_connection(engine):
    module, version = sqlite_in_use()

    assert module in ("sqlite3", "pysqlite3")
    assert execute(engine, "SELECT sqlite_version()") == [(".".join(map(str, version)),)]
    assert engine.get_database_version() == version


def test_setup_of_a_web_process_imports_neither_rich_nor_psutil():
    process = run_python(f"""
{BEFORE_THE_APPS}
print("django_mqlite.models" in sys.modules, "rich" in sys.modules, "psutil" in sys.modules)
""")

    assert process.stdout.split() == ["True", "False", "False"], process.stderr
