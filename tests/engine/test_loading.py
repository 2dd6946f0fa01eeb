"""Django's connection handler may load the engine before the apps are ready."""

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
warnings.simplefilter("ignore")  # Django's, that this is discouraged
with connections["default"].cursor() as cursor:
    assert cursor.execute("SELECT 1").fetchall() == [(1,)]
assert not apps.ready
assert "django_mqlite.models" not in sys.modules
import django
django.setup()
assert apps.ready
"""


def test_it_works_before_the_apps_are_ready():
    command = [sys.executable, "-c", BEFORE_THE_APPS]

    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (0, "")


def test_the_sqlite_in_use_is_the_one_that_is_named(engine):
    module, version = sqlite_in_use()

    assert module in ("sqlite3", "pysqlite3")
    ((said,),) = execute(engine, "SELECT sqlite_version()")
    assert said == ".".join(map(str, version))
    assert engine.get_database_version() == version


def test_setup_of_a_web_process_imports_neither_rich_nor_psutil():
    code = """
import sys, django
from django.conf import settings
settings.configure(
    DATABASES={"default": {"ENGINE": "django_mqlite.sqlite3", "NAME": ":memory:"}},
    INSTALLED_APPS=["django_mqlite"],
)
django.setup()
print("django_mqlite.models" in sys.modules, "rich" in sys.modules, "psutil" in sys.modules)
"""

    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )

    assert done.stdout.split() == ["True", "False", "False"]
