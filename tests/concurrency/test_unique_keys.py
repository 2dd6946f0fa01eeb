"""Eight processes enqueue with the same unique keys, settle and redrive, and none gets an error."""

import json
from contextlib import ExitStack

import pytest

from tests.support.files import create_database, rows, running

PROCESSES = 8
UNFINISHED = """
    SELECT unique_key, count(*) FROM mqlite_messages
     WHERE state IN ('active', 'locked', 'deferred', 'scheduled') GROUP BY unique_key
"""


@pytest.mark.rule("13.3")
def test_eight_writers_with_the_same_unique_keys_get_no_error(tmp_path):
    path = create_database(tmp_path / "db.sqlite3", jobs="standard")

    with ExitStack() as stack:
        writers = [
            stack.enter_context(running("tests.concurrency.key_writer", path, f"writer-{number}"))
            for number in range(PROCESSES)
        ]
        for writer in writers:
            assert writer.stdout.readline() == "ready\n", writer.stderr.read()
        for writer in writers:
            writer.stdin.write("go\n")
            writer.stdin.flush()
        outputs = [writer.communicate(timeout=150) for writer in writers]

    facts = [json.loads(output) for output, _ in outputs]
    stored = [id for each in facts for id in each["stored"]]
    found = [id for each in facts for id in each["found"]]
    assert [error for each in facts for error in each["errors"]] == []
    assert len(set(stored)) == len(stored)
    assert set(found) <= set(stored)
    assert len(stored) > PROCESSES
    assert len(found) > PROCESSES
    assert all(count == 1 for _, count in rows(path, UNFINISHED))
    assert rows(path, "PRAGMA integrity_check") == [("ok",)]
