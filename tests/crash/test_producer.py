"""A producer killed with SIGKILL anywhere between its writes leaves both or neither."""

import json
import os
import random
import sqlite3
from contextlib import closing

import pytest

from tests.crash.producer import ORDERS_A_ROUND
from tests.support.files import create_database, running

ROUNDS = int(os.environ.get("MQLITE_TEST_CRASH_ROUNDS", "60"))


def kill_producers(directory, mode):
    """Kill a producer in each round; return what the file contains after each."""
    path = create_database(directory / "db.sqlite3", orders="standard")
    with closing(sqlite3.connect(path, isolation_level=None)) as shop:
        shop.execute("CREATE TABLE shop_order (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE)")
    seed = random.randrange(2**32)
    with running("tests.crash.producer", path, path, ROUNDS, mode, seed) as producer:
        output, errors = producer.communicate(timeout=120)
    assert (producer.returncode, errors) == (0, ""), f"seed {seed}"
    reports = [json.loads(line) for line in output.splitlines()]
    assert len(reports) == ROUNDS
    return seed, reports


@pytest.mark.rule("1.1")
@pytest.mark.rule("10.5")
def test_killed_producer_leaves_a_sound_file_with_every_commit_whole(tmp_path):
    seed, reports = kill_producers(tmp_path, "together")

    for report in reports:
        assert report["messages without order"] == [], f"seed {seed}"
        assert report["orders without message"] == [], f"seed {seed}"
        assert report["acknowledged and lost"] == [], f"seed {seed}"
        assert report["integrity"] == [["ok"]], f"seed {seed}"
    # Otherwise the producers were not killed at work, and nothing was proven.
    orders = [report["orders"][0][0] for report in reports]
    assert all(report["killed"] for report in reports)
    assert len({after - before for before, after in zip([0, *orders], orders, strict=False)}) > 10
    assert 0 < orders[-1] < ROUNDS * ORDERS_A_ROUND
    assert reports[-1]["acknowledged"] > 0


def test_same_kills_tear_apart_two_transactions(tmp_path):
    """Proves that these kills do fall between the two writes."""
    _, reports = kill_producers(tmp_path, "apart")

    assert reports[-1]["messages without order"]
    assert reports[-1]["orders without message"]
