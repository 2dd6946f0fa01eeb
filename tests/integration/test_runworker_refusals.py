"""What keeps a worker from starting is said in one line, with the thing and the way out."""

import re

import pytest

from tests.support.powers import OBEYING_FILE_MODES, needs_file_modes

QUICKLY = {"MQLITE_TEST_TIMEOUT": "0.05"}


def refusal(command) -> str:
    """The one line that the command ends with, not well and without a traceback."""
    assert command.exit_code() == 1, command.output
    (line,) = command.output.strip().splitlines()
    assert line.startswith("CommandError: ")
    return line


@pytest.fixture
def message(database):
    return database.enqueue("jobs")


@pytest.fixture
def untouched(database, message):
    """Afterwards nothing has happened to the message, and the file is sound."""
    before = database.row(message)
    yield
    assert database.row(message) == before
    assert database.is_sound()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--queues=jobs,jbos"], "no queue 'jbos' .* Did you mean 'jobs'"),
        (["--exclude=jbos"], "no queue 'jbos' .* Did you mean 'jobs'"),
        (["--queues=jobs,nobody"], r"'nobody' has no handler. .*@handler\('nobody'\)"),
        (["--queues=jobs", "--exclude=jobs"], "no queue to serve"),
    ],
    ids=["unknown queue", "unknown exclusion", "no handler", "nothing left"],
)
@pytest.mark.usefixtures("untouched")
def test_what_cannot_be_served(database, arguments, said):
    assert re.search(said, refusal(database.start(*arguments)))


@pytest.mark.parametrize("argument", ["--threads=0", "--max-messages=-1", "--shutdown-timeout=nan"])
def test_a_number_that_is_none(database, argument):
    worker = database.start(argument)

    assert worker.exit_code() == 2
    assert argument.partition("=")[0] in worker.output
    assert "Traceback" not in worker.output


@pytest.mark.parametrize("command", ["runworker", "runreaper"])
@pytest.mark.usefixtures("untouched")
def test_a_setting_that_is_none(database, command):
    worker = database.run(command, MQLITE_TEST_OPTIONS='{"QUEUE": {}}')

    assert worker.exit_code() == 1
    assert "MQLITE has no option 'QUEUE'; did you mean 'QUEUES'" in worker.output
    assert "Traceback" not in worker.output


@pytest.mark.usefixtures("untouched")
def test_a_locked_database(database):
    with database.locked():
        line = refusal(database.start(**QUICKLY))

    assert re.search("'default' cannot be used: database is locked; .*long transactions", line)


def read_only_address(path) -> str:
    return f"file:{path}?mode=ro"


@pytest.mark.parametrize("command", [["runworker"], ["runreaper"], ["runreaper", "--once"]])
@pytest.mark.usefixtures("untouched")
def test_a_database_that_is_opened_read_only(database, command):
    address = read_only_address(database.path)

    line = refusal(database.run(*command, MQLITE_TEST_DATABASE=address))

    assert re.search("'default' cannot be used: .*readonly database; .*cannot be written", line)


@needs_file_modes
@pytest.mark.parametrize("which", ["file", "directory"])
def test_a_database_that_must_not_be_written(database, message, which):
    before = database.row(message)
    database.close()  # with the last connection goes the WAL
    path = database.path if which == "file" else database.path.parent
    mode = path.stat().st_mode
    path.chmod(0o555 if which == "directory" else 0o444)
    try:
        line = refusal(database.start(launcher=OBEYING_FILE_MODES))
    finally:
        path.chmod(mode)

    assert re.search("'default' cannot be used: .*; the file", line)
    assert database.row(message) == before


def test_a_directory_that_is_not_there(tmp_path, database):
    nowhere = str(tmp_path / "nowhere" / "db.sqlite3")

    line = refusal(database.start(MQLITE_TEST_DATABASE=nowhere))

    assert re.search("unable to open database file; .*directory", line)


@pytest.mark.parametrize("command", ["runworker", "runreaper"])
def test_tables_that_are_not_there(tmp_path, database, command):
    empty = str(tmp_path / "empty.sqlite3")

    line = refusal(database.run(command, MQLITE_TEST_DATABASE=empty))

    assert re.search("no such table: .*; run `manage.py migrate`", line)


@pytest.mark.parametrize("command", ["runworker", "runreaper"])
@pytest.mark.usefixtures("untouched")
def test_tables_of_a_newer_release(database, command):
    with database.other_program() as other:
        other.execute("UPDATE mqlite_meta SET value = '999' WHERE key = 'schema'")

    assert "schema 999" in refusal(database.run(command))


def test_a_file_that_is_no_database(tmp_path, database):
    text = tmp_path / "notes.txt"
    text.write_text("not a database, but long enough to be taken for one " * 100)

    line = refusal(database.start(MQLITE_TEST_DATABASE=str(text)))

    assert "not a database" in line
