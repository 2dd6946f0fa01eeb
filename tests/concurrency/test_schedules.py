"""Workers and reapers dispatch schedules and are killed at random: each tick is enqueued once.

The ticks are compared with lists that this file makes from the time on the wall, without cron.
"""

import json
import os
import random
import sqlite3
from collections.abc import Callable
from contextlib import ExitStack, closing
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from django_mqlite.schedules import read_schedule
from django_mqlite.timing import epoch_ms
from tests.concurrency.dispatching import SharedClock
from tests.support.files import create_database, rows, running
from tests.support.waiting import wait_until

DAYS = float(os.environ.get("MQLITE_TEST_SCHEDULE_DAYS", "1"))
"""Simulated days of the schedule that ticks each minute; the proof is a week."""

MINUTE = timedelta(minutes=1)

# A lease outlasts the clock of the test, because nothing renews it that fast.
PREPARE = """
    UPDATE mqlite_queues SET lock_duration_ms = 100 * 86400000;
    CREATE TABLE enqueued (schedule TEXT, tick TEXT);
    CREATE TRIGGER note_tick AFTER INSERT ON mqlite_messages BEGIN
        INSERT INTO enqueued VALUES (json_extract(NEW.properties, '$.schedule'),
                                     json_extract(NEW.properties, '$.scheduled_for'));
    END;
"""


class Simulation:
    """Processes that dispatch these schedules from `start`, and a clock that moves in steps."""

    def __init__(self, directory, schedules, start: datetime, *, processes: int) -> None:
        self.path = create_database(directory / "db.sqlite3", jobs="standard")
        with closing(sqlite3.connect(self.path)) as connection:
            connection.executescript(PREPARE)
        self.clock_file = directory / "clock"
        self.clock_file.write_bytes(bytes(8))
        self.clock = SharedClock(self.clock_file)
        self.schedules = schedules
        self.ticks = {
            name: read_schedule(name, options, "S", timezone="UTC").ticks
            for name, options in schedules.items()
        }
        self.chance = random.Random(str(start))
        self.stack = ExitStack()
        self.kills = 0
        self.clock.set(epoch_ms(start))
        self.processes = [self._start(number) for number in range(processes)]
        wait_until(lambda: len(self._positions()) == len(schedules), "the schedules to start")

    def _start(self, number: int):
        kind = "reaper" if number % 2 else "worker"
        arguments = (kind, self.clock_file, json.dumps(self.schedules))
        return self.stack.enter_context(
            running("tests.concurrency.dispatching", self.path, *arguments)
        )

    def kill_one(self) -> None:
        number = self.chance.randrange(len(self.processes))
        self.processes[number].kill()
        self.processes[number].wait()
        self.processes[number] = self._start(number)
        self.kills += 1

    def move(self, by: timedelta, *, kill: float) -> None:
        """Move the clock, and wait until every tick that is due has been dispatched.

        With probability `kill`, a process is killed while they all try to dispatch.
        """
        self.clock.set(self.clock.now_ms() + by // timedelta(milliseconds=1))
        if self.chance.random() < kill:
            for _ in range(self.chance.randrange(8)):
                self._has_caught_up()
            self.kill_one()
        wait_until(self._has_caught_up, f"the ticks to be dispatched: {self._errors()}")

    def _has_caught_up(self) -> bool:
        now = self.clock.now_ms()
        return all(self.ticks[name].after(at) > now for name, at in self._positions().items())

    def _positions(self) -> dict[str, int]:
        sql = "SELECT substr(key, 10), value FROM mqlite_meta WHERE key LIKE 'schedule:%'"
        return {name: json.loads(text)["position"] for name, text in rows(self.path, sql)}

    def _errors(self) -> list[str]:
        return [process.stderr.read() for process in self.processes if process.poll() is not None]

    def enqueued(self, name: str) -> list[int]:
        sql = f"SELECT tick FROM enqueued WHERE schedule = '{name}' ORDER BY tick"
        return [epoch_ms(datetime.fromisoformat(tick)) for (tick,) in rows(self.path, sql)]


@pytest.fixture
def simulate(tmp_path):
    with ExitStack() as stack:

        def start(schedules, at, *, processes):
            simulation = Simulation(tmp_path, schedules, at, processes=processes)
            stack.enter_context(simulation.stack)
            return simulation

        yield start


def on_the_wall(
    start: datetime, end: datetime, zone: str, matches: Callable[[datetime], bool]
) -> list[int]:
    """Return each minute after `start` whose local time matches."""
    count = (end - start) // MINUTE
    moments = [start + MINUTE * n for n in range(1, count + 1)]
    return [epoch_ms(at) for at in moments if matches(at.astimezone(ZoneInfo(zone)))]


@pytest.mark.rule("12.2")
def test_each_minute_is_enqueued_once_while_processes_are_killed(simulate):
    start = datetime(2026, 3, 27, tzinfo=UTC)
    simulation = simulate(
        {"minutely": {"cron": "* * * * *", "queue": "jobs", "catch_up": "all"}}, start, processes=8
    )
    end = start + timedelta(days=DAYS)

    while simulation.clock.now_ms() < epoch_ms(end):
        left = timedelta(milliseconds=epoch_ms(end) - simulation.clock.now_ms())
        step = min(simulation.chance.randrange(1, 40) * MINUTE, left)
        simulation.move(step, kill=0.2)

    assert simulation.enqueued("minutely") == on_the_wall(start, end, "UTC", lambda at: True)
    assert simulation.kills > 0


# In UTC; where the clock skips 02:30, the tick is right after the gap.
CHANGES = {
    "Europe/Berlin in spring": (
        "2026-03-28T12:07", ["2026-03-29T01:00", "2026-03-30T00:30"],
    ),
    "Europe/Berlin in autumn": (
        "2026-10-24T12:07", ["2026-10-25T00:30", "2026-10-26T01:30"],
    ),
    "America/New_York in spring": (
        "2026-03-07T12:07", ["2026-03-08T07:00", "2026-03-09T06:30"],
    ),
    "America/New_York in autumn": (
        "2026-10-31T12:07", ["2026-11-01T07:30", "2026-11-02T07:30"],
    ),
}  # fmt: skip


@pytest.mark.rule("12.1")
@pytest.mark.rule("12.2")
@pytest.mark.parametrize("change", CHANGES)
def test_each_tick_is_enqueued_once_across_a_change_of_the_clock(simulate, change):
    zone = change.partition(" ")[0]
    start_text, daily = CHANGES[change]
    start = datetime.fromisoformat(start_text + "+00:00")
    common = {"queue": "jobs", "catch_up": "all", "timezone": zone}
    schedules = {
        "daily": {"cron": "30 2 * * *", **common},
        "hourly": {"cron": "0 * * * *", **common},
        "quarterly": {"cron": "*/15 * * * *", **common},
    }
    simulation = simulate(schedules, start, processes=4)
    end = start + timedelta(days=2)

    while simulation.clock.now_ms() < epoch_ms(end):
        left = timedelta(milliseconds=epoch_ms(end) - simulation.clock.now_ms())
        step = min(simulation.chance.randrange(15, 120) * MINUTE, left)
        simulation.move(step, kill=0.1)

    assert simulation.enqueued("daily") == [
        epoch_ms(datetime.fromisoformat(at + "+00:00")) for at in daily
    ]
    assert simulation.enqueued("hourly") == on_the_wall(start, end, zone, lambda at: at.minute == 0)
    assert simulation.enqueued("quarterly") == on_the_wall(
        start, end, zone, lambda at: at.minute % 15 == 0
    )


@pytest.mark.rule("12.9")
def test_clock_steps_of_two_hours_enqueue_each_tick_once(simulate):
    start = datetime(2026, 5, 1, tzinfo=UTC)
    simulation = simulate(
        {"quarterly": {"every": 900, "queue": "jobs", "catch_up": "all"}}, start, processes=4
    )
    latest = simulation.clock.now_ms()

    for _ in range(40):
        step = simulation.chance.choice([15, 15, 15, 120, -120]) * MINUTE
        simulation.move(step, kill=0.1)
        latest = max(latest, simulation.clock.now_ms())

    end = start + timedelta(milliseconds=latest - epoch_ms(start))
    assert simulation.enqueued("quarterly") == on_the_wall(
        start, end, "UTC", lambda at: at.minute % 15 == 0
    )
