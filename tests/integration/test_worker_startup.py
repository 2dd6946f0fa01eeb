"""Checks of a worker before it starts, and the errors with which it refuses to start."""

import re
import shlex
import shutil
import sqlite3
from contextlib import closing

import pytest
from django.core.management import CommandError, call_command

from django_mqlite.handlers import Handler
from django_mqlite.worker.watchdogs import NotReady, served_queues
from tests.support import engines
from tests.support.files import create_database
from tests.support.launchers import needs_file_modes

# Served queues


@pytest.fixture
def handlers(make_queue):
    """Handlers for three queues; the queue `jobs` has none."""
    for name in ("a", "b", "c", "jobs"):
        make_queue(name)
    return {name: Handler(queue=name, function=print) for name in ("c", "a", "b")}


SERVED = [
    ([], [], "abc"),
    (["c", "a"], [], "ca"),
    (["*"], [], "abc"),
    (["c", "*"], [], "cab"),
    (["*", "a"], ["b"], "ca"),
    ([], ["b"], "ac"),
    (["c", "b"], ["b"], "c"),
    (["c", "a*"], [], "ca"),
    (["*c", "*"], ["b*"], "ca"),
    (["*b", "b*"], [], "b"),
]


@pytest.mark.parametrize(("queues", "excluded", "served"), SERVED, ids=str)
def test_served_queues_are_those_with_a_handler_or_named(handlers, queues, excluded, served):
    assert served_queues("default", handlers, queues, excluded) == tuple(served)


REFUSED = {
    "unknown queue": (["jbos"], [], r"no queue 'jbos'.*Did you mean 'jobs'"),
    "unknown exclusion": ([], ["jbos"], r"no queue 'jbos'.*Did you mean 'jobs'"),
    "no handler": (["a", "jobs"], [], r"'jobs' has no handler.*@handler\('jobs'\)"),
    "no match": (["mail-*"], [], r"No queue with a handler matches 'mail-\*'"),
    "all excluded": ([], ["a", "b", "c"], "no queue to serve"),
}


@pytest.mark.parametrize(("queues", "excluded", "refusal"), REFUSED.values(), ids=REFUSED)
def test_queues_that_cannot_be_served_are_refused(handlers, queues, excluded, refusal):
    with pytest.raises(NotReady, match=refusal):
        served_queues("default", handlers, queues, excluded)


def test_worker_without_any_handler_is_refused(handlers):
    with pytest.raises(NotReady, match="no queue to serve"):
        served_queues("default", {}, [], [])


def test_handler_for_a_missing_queue_is_skipped_with_a_warning(handlers, caplog):
    handlers["ghost"] = Handler(queue="ghost", function=print)

    assert served_queues("default", handlers, ["a"], []) == ("a",)
    assert served_queues("default", handlers, [], ["ghost*"]) == ("a", "b", "c")
    assert caplog.messages == []
    assert served_queues("default", handlers, [], []) == ("a", "b", "c")
    assert served_queues("default", handlers, ["c", "*"], []) == ("c", "a", "b")
    assert [text.partition(",")[0] for text in caplog.messages] == [
        "queue ghost has a handler and is not served"
    ] * 2
    with pytest.raises(NotReady, match="no queue 'ghost'"):
        served_queues("default", handlers, ["ghost"], [])


# Options and databases that are refused

ABSURD = {
    "--threads=0": "use a whole number from 1 to 1000",
    "--threads=1001": "use a whole number from 1 to 1000",
    "--threads=1000000": "use a whole number from 1 to 1000",
    "--processes=257": "use a whole number from 1 to 256",
    "--max-messages=0": "use a whole number from 1",
    "--max-memory=-1": "use a whole number from 1",
    "--shutdown-timeout=nan": "Invalid duration 'nan'",
    "--queues=": "name at least one queue, or leave out the option",
    "--queues=,": "name at least one queue, or leave out the option",
    "--exclude=' '": "name at least one queue, or leave out the option",
    "--processes=2 --reload": "--reload runs one process: leave out --processes",
}


@pytest.mark.parametrize("options", ABSURD)
def test_absurd_option_is_refused(options):
    with pytest.raises(CommandError, match=ABSURD[options]):
        call_command("runworker", *shlex.split(options))


@pytest.mark.parametrize("port", ["0", "65536", "-1", "http"])
def test_absurd_port_of_the_broker_is_refused(port):
    with pytest.raises(CommandError, match="use a whole number from 1 to 65535"):
        call_command("runbroker", f"--port={port}")


@pytest.mark.django_db
@pytest.mark.parametrize("option", ["queues", "exclude"])
def test_option_of_call_command_that_names_no_queue_is_refused(option):
    with pytest.raises(CommandError, match="name at least one queue"):
        call_command("runworker", **{option: ""})


@pytest.mark.django_db
@pytest.mark.parametrize("command", ["runworker", "runreaper"])
def test_unknown_setting_is_refused_with_a_suggestion(settings, command):
    settings.MQLITE = {"QUEUE": {}}

    with pytest.raises(CommandError, match="MQLITE has no option 'QUEUE'; did you mean 'QUEUES'"):
        call_command(command)


@pytest.mark.parametrize("argument", ["--threads=0", "--max-messages=-1", "--shutdown-timeout=nan"])
def test_invalid_number_is_refused(argument):
    with pytest.raises(CommandError, match=argument.partition("=")[0]):
        call_command("runworker", argument)


def test_reload_of_several_processes_is_refused():
    with pytest.raises(CommandError, match="--reload runs one process"):
        call_command("runworker", "--reload", "--processes=2")


@pytest.mark.django_db(transaction=True)
def test_unknown_queue_is_refused_by_the_command(queue):
    with pytest.raises(CommandError, match=r"no queue 'jbos' .* Did you mean 'jobs'"):
        call_command("runworker", "--queues=jobs,jbos")


def newer(path):
    with closing(sqlite3.connect(create_database(path))) as other, other:
        other.execute("INSERT INTO mqlite_meta VALUES ('schema', '999', 0)")
    return path


def text_file(path):
    path.write_text("too long to be taken for an empty database " * 100)
    return path


DATABASES = {
    "read-only": (
        lambda path: f"file:{create_database(path)}?mode=ro",
        "'other' cannot be used: .*readonly database; .*cannot be written",
    ),
    "in a missing directory": (
        lambda path: path.parent / "nowhere" / path.name,
        "unable to open database file; .*directory",
    ),
    "without tables": (lambda path: path, "no such table: .*; run `manage.py migrate`"),
    "not a database": (text_file, "not a database"),
    "of a newer release": (newer, "schema 999"),
}


@pytest.mark.parametrize("command", [["runworker"], ["runreaper", "--once"]])
@pytest.mark.parametrize(("make", "refusal"), DATABASES.values(), ids=DATABASES)
def test_unusable_database_is_refused(tmp_path, django_db_blocker, make, refusal, command):
    name = make(tmp_path / "db.sqlite3")

    with (
        django_db_blocker.unblock(),
        engines.database("other", name),
        pytest.raises(CommandError, match=refusal),
    ):
        call_command(*command, database="other")


def test_locked_database_is_refused(tmp_path, django_db_blocker):
    path = create_database(tmp_path / "db.sqlite3")

    with (
        django_db_blocker.unblock(),
        engines.database("other", path, timeout=0.05),
        closing(sqlite3.connect(path, isolation_level=None)) as other,
        pytest.raises(CommandError, match=r"database is locked; .*long transactions"),
    ):
        other.execute("BEGIN IMMEDIATE")
        call_command("runworker", database="other")


def refusal_of(command) -> str:
    """Return the one line of a command that fails, which is not a traceback."""
    assert command.exit_code() == 1, command.output
    (line,) = command.output.strip().splitlines()
    assert line.startswith("CommandError: ")
    return line


@needs_file_modes
@pytest.mark.parametrize("part", ["file", "directory"])
def test_database_without_write_permission_is_refused(database, part):
    message = database.enqueue("jobs")
    before = database.row(message)
    database.close()  # with the last connection goes the WAL
    path = database.path if part == "file" else database.path.parent
    mode = path.stat().st_mode
    path.chmod(0o555 if part == "directory" else 0o444)
    try:
        line = refusal_of(database.start(launcher="file_modes"))
    finally:
        path.chmod(mode)

    assert re.search("'default' cannot be used: .*; the file", line)
    assert database.row(message) == before
    assert database.is_sound()


# Modules of the project that cannot be imported


@pytest.fixture
def run_broken(tmp_path, database):
    """Run a command of a project with an app whose module cannot be imported."""

    def run(module, *command, **environment):
        app = tmp_path / "broken_shop"
        app.mkdir()
        (app / "__init__.py").touch()
        (app / f"{module}.py").write_text("import os\n\nimport no_such_module\n")
        (tmp_path / "broken_settings.py").write_text(
            "from tests.support.worker_settings import *\n"
            "INSTALLED_APPS = [*INSTALLED_APPS, 'broken_shop']\n"
        )
        paths = {"PYTHONPATH": str(tmp_path), "DJANGO_SETTINGS_MODULE": "broken_settings"}
        return database.run(*command, **paths, **environment)

    return run


def reason(module):
    return (
        rf"Module 'broken_shop\.{module}' of app 'broken_shop' cannot be imported: "
        rf"ModuleNotFoundError at \S+broken_shop/{module}\.py, line 3: "
        "No module named 'no_such_module'"
    )


@pytest.mark.parametrize("module", ["handlers", "tasks"])
def test_migrate_warns_of_a_broken_module(run_broken, module):
    migrate = run_broken(module, "migrate")

    assert migrate.exit_code() == 0, migrate.output
    assert re.search(reason(module), migrate.output)


@pytest.mark.parametrize(
    ("module", "arguments"),
    [("handlers", []), ("handlers", ["--processes=2"]), ("handlers", ["--reload"]), ("tasks", [])],
    ids=str,
)
def test_worker_with_a_broken_module_is_refused(run_broken, module, arguments):
    line = refusal_of(run_broken(module, "runworker", *arguments))

    assert re.match(f"CommandError: {reason(module)}", line)


@pytest.mark.parametrize(
    ("modules", "code", "expected"),
    [
        ('["tests.support.worker_app.handlers"]', 0, "stopped after 1 messages"),
        ("[]", 1, "Queue 'jobs' has no handler"),
    ],
)
def test_handlers_setting_replaces_the_modules_of_apps(
    run_broken, database, modules, code, expected
):
    database.enqueue("jobs")
    worker = run_broken(
        *("handlers", "runworker", "--queues=jobs", "--burst"),
        MQLITE_TEST_OPTIONS=f'{{"HANDLERS": {modules}}}',
    )

    assert worker.exit_code() == code, worker.output
    assert expected in worker.output


# The database that --database names

TWO_DATABASES = """
from tests.support.worker_settings import *

DATABASES["other"] = DATABASES["default"] | {{"NAME": {other!r}}}
DATABASES[{careless!r}]["OPTIONS"] = {{
    **DATABASES[{careless!r}]["OPTIONS"], "timeout": 1, "init_command": "PRAGMA synchronous=OFF"
}}
"""


@pytest.mark.parametrize("careless", ["default", "other"])
@pytest.mark.parametrize(
    "command",
    [
        ["runworker", "--burst"],
        ["mqlite", "worker", "--burst"],
        ["runreaper", "--once"],
        ["mqlite", "doctor", "--quick"],
    ],
    ids=["worker", "mqlite worker", "reaper", "doctor"],
)
def test_only_the_database_that_the_command_names_is_checked(
    database, migrated_file, tmp_path, command, careless
):
    other = shutil.copy(migrated_file, tmp_path / "other.sqlite3")
    settings = TWO_DATABASES.format(other=str(other), careless=careless)
    (tmp_path / "two_databases.py").write_text(settings)
    environment = {"PYTHONPATH": str(tmp_path), "DJANGO_SETTINGS_MODULE": "two_databases"}

    for alias in ("default", "other"):
        command_run = database.run(*command, "--database", alias, **environment)

        assert command_run.exit_code() == 0, command_run.output
        ids = {id for id in ("mqlite.W007", "mqlite.W008") if id in command_run.output}
        assert ids == ({"mqlite.W007", "mqlite.W008"} if alias == careless else set())
