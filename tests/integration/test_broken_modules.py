"""An app whose modules cannot be imported: `migrate` runs, and workers refuse with the reason."""

import re

import pytest

SETTINGS = """
from tests.support.worker_settings import *

INSTALLED_APPS = [*INSTALLED_APPS, "broken_shop"]
"""
BROKEN = "import os\n\nimport no_such_module\n"
REASON = (
    r"Module 'broken_shop\.{module}' of app 'broken_shop' cannot be imported: "
    r"ModuleNotFoundError at \S+broken_shop/{module}\.py, line 3: No module named 'no_such_module'"
)


@pytest.fixture
def run_with(tmp_path, database):
    """Run a command of a project with an app that has such a module."""

    def run(module, *command, **environment):
        app = tmp_path / "broken_shop"
        app.mkdir()
        (app / "__init__.py").touch()
        (app / f"{module}.py").write_text(BROKEN)
        (tmp_path / "broken_settings.py").write_text(SETTINGS)
        return database.run(
            *command,
            PYTHONPATH=str(tmp_path),
            DJANGO_SETTINGS_MODULE="broken_settings",
            **environment,
        )

    return run


@pytest.mark.parametrize("module", ["handlers", "tasks"])
def test_migrate_runs_and_warns_of_a_broken_module(run_with, module):
    migrate = run_with(module, "migrate")

    assert migrate.exit_code() == 0, migrate.output
    assert re.search(REASON.format(module=module), migrate.output)


@pytest.mark.parametrize("module", ["handlers", "tasks"])
@pytest.mark.parametrize("arguments", [[], ["--processes=2"], ["--reload"]], ids=str)
def test_no_worker_starts_with_a_broken_module(run_with, module, arguments):
    worker = run_with(module, "runworker", *arguments)

    assert worker.exit_code() == 1
    (line,) = worker.output.strip().splitlines()
    assert re.match(f"CommandError: {REASON.format(module=module)}", line)


def test_a_module_that_the_setting_does_not_name_is_not_imported(run_with, database):
    message = database.enqueue("jobs")

    worker = run_with(
        "handlers",
        "runworker",
        "--burst",
        MQLITE_TEST_OPTIONS='{"HANDLERS": ["tests.support.worker_app.handlers"]}',
    )

    assert worker.exit_code() == 0, worker.output
    assert database.state(message) == "gone"


def test_without_any_module_no_handler_is_imported(run_with):
    worker = run_with(
        "handlers", "runworker", "--queues=jobs", MQLITE_TEST_OPTIONS='{"HANDLERS": []}'
    )

    assert worker.exit_code() == 1
    assert "Queue 'jobs' has no handler" in worker.output
