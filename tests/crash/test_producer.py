"""A producer killed with SIGKILL anywhere between its writes leaves both or neither."""

import json
import os
import random
import sqlite3
from contextlib import closing

import pytest

from tests.crash.producer import ORDERS_A_ROUND
from tests.support.files import create_database, running

# What the fixture plays or builds is played or built once, whatever the number of workers.
pytestmark = pytest.mark.xdist_group("producer")

ROUNDS = int(os.environ.get("MQLITE_TEST_CRASH_ROUNDS", "60"))


def play(directory, how, rounds):
    """What was found in the file after each round."""
    path = create_database(directory / "db.sqlite3", orders="standard")
    with closing(sqlite3.connect(path, isolation_level=None)) as shop:
        shop.execute("CREATE TABLE shop_order (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE)")
    seed = random.randrange(2**32)
    with running("tests.crash.producer", path, path, rounds, how, seed) as producer:
        output, errors = producer.communicate(timeout=120)
    assert (producer.returncode, errors) == (0, ""), f"seed {seed}"
    found = [json.loads(line) for line in output.splitlines()]
    assert len(found) == rounds
    return seed, found


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    return play(tmp_path_factory.mktemp("killed"), "together", ROUNDS)


@pytest.mark.rule("1.1")
@pytest.mark.rule("10.5")
def test_no_message_is_without_its_order_and_no_order_without_its_message(killed):
    seed, found = killed

    for look in found:
        assert look["messages without order"] == [], f"seed {seed}"
        assert look["orders without message"] == [], f"seed {seed}"


@pytest.mark.rule("10.5")
def test_the_file_is_complete_and_consistent_after_every_kill(killed):
    seed, found = killed

    assert {json.dumps(look["integrity"]) for look in found} == {'[["ok"]]'}, f"seed {seed}"


@pytest.mark.rule("10.5")
def test_every_acknowledged_commit_is_there(killed):
    seed, found = killed

    for look in found:
        assert look["acknowledged and lost"] == [], f"seed {seed}"


def test_the_producers_were_killed_at_work(killed):
    """Otherwise nothing above was tested."""
    _, found = killed
    orders = [look["orders"][0][0] for look in found]
    placed = [after - before for before, after in zip([0, *orders], orders, strict=False)]

    assert all(look["killed"] for look in found)
    assert len(set(placed)) > 10
    assert 0 < orders[-1] < ROUNDS * ORDERS_A_ROUND
    assert found[-1]["acknowledged"] > 0


def test_the_same_kills_tear_apart_what_is_not_one_transaction(tmp_path):
    """The proof that these kills do fall between the two writes."""
    _, found = play(tmp_path, "apart", ROUNDS)

    last = found[-1]
    assert last["messages without order"]
    assert last["orders without message"]
