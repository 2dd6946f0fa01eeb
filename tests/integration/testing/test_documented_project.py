"""The project in docs/tasks.md and docs/testing.md works, and its tests pass."""

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.support.source import ROOT
from tests.support.waiting import PATIENCE

FILE = re.compile(r"^```python\n# (\S+\.py)\n(.*?)^```$", re.MULTILINE | re.DOTALL)

# Settings that the documents do not show.
SETTINGS = """
from pathlib import Path

from django_mqlite.conf import sqlite_options

DIRECTORY = Path(__file__).parent
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": DIRECTORY / "db.sqlite3",
        "OPTIONS": sqlite_options(),
    }
}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
MQLITE = {"QUEUES": {"mails": {}, "bank": {}}}
SECRET_KEY = "not a secret"
SILENCED_SYSTEM_CHECKS = ["mqlite.W001"]
USE_TZ = True
"""
MODELS = """
from django.db import models


class Mail(models.Model):
    to = models.IntegerField()
"""
FRAMEWORK_COMES_WITH_DJANGO = find_spec("django.tasks") is not None


def documented() -> dict[str, str]:
    """Return the files that the two documents show, by path."""
    pages = ("tasks.md", "testing.md")
    text = "\n".join((ROOT / "docs" / page).read_text(encoding="utf-8") for page in pages)
    return dict(FILE.findall(text))


def on_this_django(name: str, source: str) -> str:
    """Apply what the document says in a comment about Django 5.2."""
    if FRAMEWORK_COMES_WITH_DJANGO:
        return source
    if name == "settings.py":
        return f'{source}\nINSTALLED_APPS.append("django_tasks")\n'
    return source.replace("from django.tasks import", "from django_tasks import")


@pytest.fixture(scope="module")
def project(tmp_path_factory) -> Path:
    """The project in a directory of its own."""
    directory = tmp_path_factory.mktemp("project")
    files = documented()
    files["settings.py"] = SETTINGS + files["settings.py"]
    files["shop/models.py"] = MODELS
    files["shop/__init__.py"] = ""
    for name, source in files.items():
        path = directory / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(on_this_django(name, source), encoding="utf-8")
    return directory


def run(project: Path, *command: str) -> str:
    """Run a command that must succeed, and return its output."""
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("MQLITE_")
    }
    process = subprocess.run(
        [sys.executable, "-m", *command],
        cwd=project,
        env={**environment, "DJANGO_SETTINGS_MODULE": "settings"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=PATIENCE * 4,
        check=False,
    )
    assert process.returncode == 0, process.stdout
    return process.stdout


def test_documents_show_settings_tasks_and_tests():
    files = {"settings.py", "shop/tasks.py", "shop/tests.py", "shop/test_with_pytest.py"}

    assert files <= set(documented())


def test_documented_settings_pass_the_checks(project):
    assert "no issues" in run(project, "django", "check", "--fail-level=WARNING")


@pytest.mark.parametrize("arguments", [[], ["--parallel=2"]], ids=["serial", "parallel"])
def test_documented_tests_pass_in_djangos_runner(project, arguments):
    output = run(project, "django", "test", *arguments)

    assert re.search(r"^Ran 5 tests", output, re.MULTILINE), output


def test_documented_tests_pass_in_pytest_with_the_plugin(project):
    output = run(project, "pytest", "-q", "-p", "no:cacheprovider", "shop/test_with_pytest.py")

    assert "2 passed" in output


ENQUEUE = """
import django

django.setup()

from shop.newsletter import greet
from shop.orders import place
from shop.tasks import ping

print(*[result.id for result in [*greet([1, 2]), ping.enqueue("here"), place(7)]])
"""
SHOW_RESULTS = """
import sys

import django

django.setup()

from shop.results import describe
from shop.tasks import charge, ping, welcome

welcomed, again, pinged, charged = sys.argv[1:]
print([welcome.get_result(id).return_value for id in (welcomed, again)])
print(ping.get_result(pinged).return_value)
print(describe(charged))
"""


def test_documented_tasks_run_in_a_worker(project):
    (project / "enqueue.py").write_text(ENQUEUE)
    (project / "show_results.py").write_text(SHOW_RESULTS)
    run(project, "django", "migrate", "--run-syncdb", "--verbosity=0")

    ids = run(project, "enqueue").split()
    run(project, "django", "runworker", "--burst")

    assert run(project, "show_results", *ids).splitlines() == [
        "['welcomed 1', 'welcomed 2']",
        "here",
        "READY after 1",
    ]
