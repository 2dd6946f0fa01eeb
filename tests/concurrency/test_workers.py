"""Several real workers on one file."""

from collections import Counter, defaultdict

from tests.support.waiting import wait_until

GROUPS = 8


def test_each_message_is_handled_once(database):
    ids = database.enqueue_many("jobs", 500)
    workers = [database.start("--burst", "--queues=jobs") for _ in range(2)]

    for worker in workers:
        assert worker.ended_well()

    assert database.left() == 0
    assert Counter(database.handled()) == Counter(ids)
    assert {delivery for _, delivery, _ in database.effects()} == {1}


def test_messages_are_shared_by_the_workers(database):
    steps = {"wait_for": database.file("go-on")}
    for _ in range(2):
        database.enqueue("jobs", steps)
    workers = [database.start("--threads=1", "--max-messages=1") for _ in range(2)]

    held = "SELECT count(*) FROM mqlite_messages WHERE state = 'locked'"
    wait_until(lambda: database.scalar(held) == 2, "each worker to hold one")
    database.beside.joinpath("go-on").touch()

    for worker in workers:
        assert worker.ended_well()
    assert len({worker for _, _, worker in database.effects()}) == 2


def test_workers_keep_the_order_of_each_group(database):
    expected = defaultdict(list)
    with database.transaction():
        for number in range(GROUPS * 20):
            group = f"group-{number % GROUPS}"
            expected[group].append(database.enqueue("groups", group_id=group).pk)
    group_of = {id: group for group, ids in expected.items() for id in ids}
    workers = [database.start("--burst", "--queues=groups", "--threads=4") for _ in range(2)]

    for worker in workers:
        assert worker.ended_well()

    handled = defaultdict(list)
    for id in database.handled():
        handled[group_of[id]].append(id)
    assert handled == expected
    assert database.left() == 0


def test_strict_queue_is_handled_in_order(database):
    ids = database.enqueue_many("strict", 60)
    workers = [database.start("--queues=strict", "--threads=4").wait_ready() for _ in range(2)]

    wait_until(lambda: database.left() == 0, "every message to be handled")

    assert database.handled() == ids
    for worker in workers:
        worker.terminate()
        assert worker.ended_well()
