"""drain(schedules=True) dispatches the due ticks of schedules, and runs their messages."""

from datetime import timedelta

import pytest

from django_mqlite import handlers
from django_mqlite.models import Message, Schedule
from django_mqlite.testing import drain

DAY = timedelta(days=1)


@pytest.fixture(autouse=True)
def handled(settings, queue, monkeypatch):
    """The messages handled of a schedule that ticks at three, in the transaction of a TestCase."""
    settings.MQLITE = {"SCHEDULES": {"nightly": {"cron": "0 3 * * *", "queue": "jobs"}}}
    settings.TIME_ZONE = "UTC"
    monkeypatch.setattr(handlers, "_handlers", {})
    messages = []

    @handlers.handler("jobs")
    def handle(message):
        messages.append(message)

    return messages


def test_due_tick_is_dispatched_and_handled(handled, clock):
    assert drain(schedules=True) == []
    clock.advance(timedelta(hours=3))

    (message,) = drain(schedules=True)

    assert message.properties["scheduled_for"] == "2026-01-01T03:00:00+00:00"
    assert handled == [message]


def test_each_tick_is_handled_once(handled, clock):
    drain(schedules=True)

    for _ in range(3):
        clock.advance(DAY)
        drain(schedules=True)
        drain(schedules=True)

    assert len(handled) == 3


def test_ticks_are_not_dispatched_by_default(handled, clock):
    drain(schedules=True)
    clock.advance(DAY)

    assert drain() == []

    assert not Message.objects.exists()


def test_schedule_that_runs_now_is_handled():
    Schedule.objects.run_now("nightly")

    (message,) = drain()

    assert message.properties["schedule"] == "nightly"
