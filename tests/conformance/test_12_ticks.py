"""Rules 12.1 and 12.4 for the pure part: when a schedule ticks, in every time zone."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from django_mqlite.schedules import MAX_CAUGHT_UP, read_schedule
from django_mqlite.ticks import Cron, Every
from django_mqlite.timing import epoch_ms

MINUTE = timedelta(minutes=1)
ZONES = ("Europe/Berlin", "America/New_York")
# Two days around each change of the year 2026, in UTC.
CHANGES = {
    "Europe/Berlin": (datetime(2026, 3, 28, tzinfo=UTC), datetime(2026, 10, 24, tzinfo=UTC)),
    "America/New_York": (datetime(2026, 3, 7, tzinfo=UTC), datetime(2026, 10, 31, tzinfo=UTC)),
}
# Where the clock skips 02:30, "30 2 * * *" runs right after the gap; where it repeats it, as Berlin
# does, it runs once.
DAILY = {
    "Europe/Berlin": [
        "2026-03-28T01:30", "2026-03-29T01:00", "2026-03-30T00:30",
        "2026-10-24T00:30", "2026-10-25T00:30", "2026-10-26T01:30",
    ],
    "America/New_York": [
        "2026-03-07T07:30", "2026-03-08T07:00", "2026-03-09T06:30",
        "2026-10-31T06:30", "2026-11-01T07:30", "2026-11-02T07:30",
    ],
}  # fmt: skip


def cron(expression, timezone="UTC"):
    return Cron.parse(expression, timezone, "S")


def forward(ticks, start, end):
    """Every tick in between, one after the other."""
    found, at = [], epoch_ms(start)
    while (at := ticks.after(at)) is not None and at <= epoch_ms(end):
        found.append(at)
    return found


def minutes(start, end, matches, zone):
    """Every minute in between whose time on the wall matches: a list that needs no cron."""
    count = (end - start) // MINUTE
    moments = [start + MINUTE * n for n in range(1, count + 1)]
    return [epoch_ms(at) for at in moments if matches(at.astimezone(ZoneInfo(zone)))]


@pytest.mark.rule("12.1")
@pytest.mark.parametrize("zone", ZONES)
def test_daily_tick_runs_once_on_each_day_of_a_change(zone):
    ticks = cron("30 2 * * *", zone)

    found = []
    for start in CHANGES[zone]:
        found += forward(ticks, start, start + timedelta(days=3))

    assert found == [epoch_ms(datetime.fromisoformat(at + "+00:00")) for at in DAILY[zone]]


@pytest.mark.rule("12.1")
@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize(
    ("expression", "matches"),
    [
        ("0 * * * *", lambda at: at.minute == 0),
        ("*/15 * * * *", lambda at: at.minute % 15 == 0),
        ("* * * * *", lambda at: True),
        ("0 30 2 * * *", lambda at: (at.hour, at.minute) == (2, 30)),
    ],
)
def test_frequent_ticks_follow_the_wall_clock_through_each_change(zone, expression, matches):
    for start in CHANGES[zone]:
        end = start + timedelta(days=3)

        assert forward(cron(expression, zone), start, end) == minutes(start, end, matches, zone)


@pytest.mark.rule("12.1")
@pytest.mark.parametrize("zone", [*ZONES, "Australia/Lord_Howe", "UTC", "Asia/Kolkata"])
@pytest.mark.parametrize(
    "expression", ["30 2 * * *", "0,30 1-3 * * *", "0 * * * *", "*/15 * * * *", "0 2 1,31 * *"]
)
def test_last_ticks_are_those_that_came_one_after_the_other(zone, expression):
    ticks = cron(expression, zone)

    for change in CHANGES.get(zone, (datetime(2026, 4, 4, tzinfo=UTC),)):
        start = change - timedelta(days=20)
        known = forward(ticks, start, change + timedelta(days=2))
        for quarter in range(0, 2 * 24 * 4, 3):
            until = epoch_ms(change + quarter * timedelta(minutes=15))
            expected = [at for at in known if at <= until][-3:]
            assert ticks.last(after=epoch_ms(start), until=until, limit=3) == expected


@pytest.mark.rule("12.1")
def test_ticks_never_repeat_in_the_hour_that_the_clock_repeats():
    ticks = cron("30 2 * * *", "Europe/Berlin")
    second_half_past_one = datetime(2026, 10, 25, 1, 10, tzinfo=UTC)  # 02:10, for the second time

    following = ticks.after(epoch_ms(second_half_past_one))

    assert following == epoch_ms(datetime(2026, 10, 26, 1, 30, tzinfo=UTC))


@pytest.mark.rule("12.1")
def test_ticks_of_a_period_are_its_multiples_since_1970():
    ticks = Every.parse(300, timedelta(seconds=7), "S")
    now = epoch_ms(datetime(2026, 1, 1, 12, 0, tzinfo=UTC))

    assert ticks.after(now) == now + 7_000
    assert ticks.after(now + 7_000) == now + 307_000
    assert ticks.last(after=now, until=now + 1_000_000, limit=2) == [now + 607_000, now + 907_000]
    assert ticks.last(after=now, until=now, limit=2) == []


@pytest.mark.rule("12.1")
def test_definition_of_a_long_period_is_exact():
    assert Every.parse(timedelta(days=365), timedelta(), "S").text == "every 31536000 s"
    assert Every.parse(1234567.891, 0.25, "S").text == "every 1234567.891 s + 0.25 s"


@pytest.mark.rule("12.1")
def test_six_fields_begin_with_seconds():
    start = datetime(2026, 1, 1, tzinfo=UTC)

    found = forward(cron("*/20 * * * * *"), start, start + MINUTE)

    assert found == [epoch_ms(start) + seconds * 1_000 for seconds in (20, 40, 60)]


def schedule(**options):
    return read_schedule("s", {"queue": "jobs", **options}, "S", timezone="UTC")


@pytest.mark.rule("12.4")
@pytest.mark.parametrize(
    ("catch_up", "late", "expected"),
    [
        ("latest", 0, [600]),
        ("latest", 59, [600]),
        ("none", 60, [600]),
        ("none", 61, []),
        ("all", 0, list(range(60, 601, 60))),
    ],
)
def test_catch_up_decides_which_missed_ticks_are_enqueued(catch_up, late, expected):
    every_minute = schedule(every=60, catch_up=catch_up)
    if late > 59:
        every_minute = schedule(every=600, catch_up=catch_up)

    ticks, missed = every_minute.to_enqueue(after=0, until=(600 + late) * 1_000)

    assert ticks == [at * 1_000 for at in expected]
    assert missed == (len(expected) < (1 if late > 59 else 10))


@pytest.mark.rule("12.4")
def test_catching_up_on_all_ticks_stops_at_a_hundred():
    ticks, missed = schedule(every=60, catch_up="all").to_enqueue(after=0, until=60_000 * 1_000)

    assert ticks == [60_000 * n for n in range(901, 1001)]
    assert len(ticks) == MAX_CAUGHT_UP
    assert missed


@pytest.mark.rule("12.1")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "S must have either 'cron' or 'every'"),
        ({"cron": "* * * * *", "every": 60}, "S must have either 'cron' or 'every'"),
        ({"corn": "* * * * *"}, "S has no option 'corn'; did you mean 'cron'?"),
        ({"cron": 5}, "S['cron'] must be a str, not 5"),
        ({"cron": "60 * * * *"}, "S['cron'] is not a valid cron expression: '60 * * * *'"),
        ({"cron": "0 0 30 2 *"}, "S['cron'] is not a valid cron expression: '0 0 30 2 *'"),
        ({"cron": "0 0 29 2 */8", "timezone": "Europe/Berlin"}, None),
        ({"cron": "* * * * *", "timezone": "Berlin"}, "S['timezone'] is not a known time zone"),
        ({"cron": "* * * * *", "timezone": "../x"}, "S['timezone'] is not a known time zone"),
        ({"cron": "* * * * *", "timezone": "Europe"}, "S['timezone'] is not a known time zone"),
        ({"cron": "* * * * *", "timezone": None}, "S['timezone'] is not a known time zone: None"),
        ({"cron": "* * * * *", "phase": 5}, "S cannot have 'phase': 'phase' needs 'every'"),
        ({"every": 60, "timezone": "UTC"}, "S cannot have 'timezone': 'timezone' needs 'cron'"),
        ({"every": 0.5}, "S['every'] must be at least 1 s and at most 100 years, not 0.5"),
        ({"every": "60"}, "S['every'] must be a timedelta or a number of seconds, not '60'"),
        ({"every": 60, "phase": 60}, "S['phase'] must be shorter than 'every', not 60"),
        ({"every": 60, "catch_up": "last"}, "S['catch_up'] must be one of latest, none, all"),
        ({"every": 60, "overlap": True}, "S['overlap'] must be one of allow, skip, not True"),
        ({"every": 60, "args": [1]}, "S cannot have 'args': it is for tasks; use 'data'"),
        ({"every": 60, "data": {1: 2}}, "S: data has the key 1: keys in JSON are strings"),
        ({"every": 60, "priority": "high"}, "S: priority must be an int, not 'high'"),
        ({"every": 60, "queue": "a b"}, "Invalid queue name 'a b'"),
        ({"every": 60, "task": "shop.tasks.report", "data": 1}, "S cannot have 'data': it is for"),
        ({"every": 60, "task": "shop tasks"}, "S['task'] must be the path of a task, such as"),
        ({"every": 60, "task": "a.b", "args": 5}, "S['args'] must be a list, not 5"),
        ({"every": 60, "task": "a.b", "kwargs": [5]}, "S['kwargs'] must be a dict, not [5]"),
        ({"every": 60, "task": "a.b", "kwargs": {"a": {5}}}, "S, args and kwargs[1]['a'] is {5}"),
    ],
)
def test_invalid_option_of_a_schedule_is_refused_by_name(options, message):
    if message is None:
        schedule(**options)
        return
    with pytest.raises((TypeError, ValueError)) as refused:
        schedule(**options)

    assert str(refused.value).startswith(message)


@pytest.mark.rule("12.1")
def test_schedule_without_task_and_queue_is_refused():
    with pytest.raises(ValueError, match="S must have either 'task' or 'queue'"):
        read_schedule("s", {"every": 60}, "S", timezone="UTC")


@pytest.mark.rule("12.1")
def test_invalid_name_of_a_schedule_is_refused():
    with pytest.raises(ValueError, match="Invalid schedule name 'a b': use 1 to 128 letters"):
        read_schedule("a b", {"every": 60, "queue": "jobs"}, "S", timezone="UTC")
