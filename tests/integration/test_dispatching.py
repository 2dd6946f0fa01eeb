"""Real workers and reapers dispatch schedules, with the clock of the machine."""

import json
from collections import Counter
from datetime import datetime

import pytest

from django_mqlite.models import Message, MetaEntry
from tests.support.waiting import wait_until
from tests.support.workers import ALIAS

pytestmark = pytest.mark.django_db

EVERY_SECOND = json.dumps({"SCHEDULES": {"s": {"every": 1, "queue": "nobody", "catch_up": "all"}}})


def ticks():
    messages = Message.objects.using(ALIAS).filter(queue="nobody").order_by("pk")
    return [datetime.fromisoformat(message.properties["scheduled_for"]) for message in messages]


def wait_for_ticks(count):
    return wait_until(lambda: ticks() if len(ticks()) >= count else [], f"{count} ticks")


def assert_each_second_once(found):
    assert set(Counter(found).values()) == {1}
    assert [(at - found[0]).total_seconds() for at in found] == list(range(len(found)))


@pytest.mark.parametrize("arguments", [[], ["--processes=2"]], ids=["one process", "two processes"])
def test_workers_dispatch_each_tick_once(database, arguments):
    options = {"MQLITE_TEST_OPTIONS": EVERY_SECOND}
    workers = [database.start(*arguments, **options) for _ in range(2)]

    assert_each_second_once(wait_for_ticks(3))

    for worker in workers:
        worker.terminate()
        assert worker.ended_well()


def test_reaper_dispatches_and_a_worker_without_reaper_does_not(database):
    options = {"MQLITE_TEST_OPTIONS": EVERY_SECOND}
    worker = database.start("--no-reaper", **options).wait_ready()
    worker.wait_looks(30)
    assert not MetaEntry.objects.using(ALIAS).filter(key="schedule:s").exists()

    reaper = database.run("runreaper", **options)

    assert_each_second_once(wait_for_ticks(2))
    for process in (worker, reaper):
        process.terminate()
        assert process.ended_well()


def test_reaper_that_runs_once_dispatches_what_is_due(database):
    options = {"MQLITE_TEST_OPTIONS": EVERY_SECOND}
    assert database.run("runreaper", "--once", **options).ended_well()
    assert ticks() == []

    def dispatched():
        assert database.run("runreaper", "--once", **options).ended_well()
        return ticks()

    assert_each_second_once(wait_until(dispatched, "a tick"))


def test_handler_receives_the_message_of_a_tick(database):
    schedules = {"SCHEDULES": {"s": {"every": 1, "queue": "jobs", "data": {}}}}
    worker = database.start(MQLITE_TEST_OPTIONS=json.dumps(schedules))

    wait_until(lambda: len(database.handled()) >= 2, "two ticks to be handled")

    worker.terminate()
    assert worker.ended_well()


@pytest.mark.parametrize("command", ["runworker", "runreaper"])
def test_invalid_schedule_is_refused_at_the_start(database, command):
    schedules = {"SCHEDULES": {"s": {"cron": "* * *", "queue": "jobs"}}}

    worker = database.run(command, MQLITE_TEST_OPTIONS=json.dumps(schedules))

    assert worker.exit_code() == 1
    assert "MQLITE['SCHEDULES']['s']['cron'] is not a valid cron expression" in worker.output
