"""8.4 and 8.5 Due times in any time zone, under a frozen clock, and when the clock steps."""

import time
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import freezegun
import pytest
import time_machine
from django.utils import timezone

from django_mqlite import LockLost, enqueue
from django_mqlite import timing as clock
from django_mqlite.verbs import sweeps
from tests.support.verbs import (
    activate,
    claim_ids,
    claim_one,
    dead_letter,
    enqueue_and_claim,
    reap,
    row_of,
    state_of,
)

pytestmark = pytest.mark.django_db

NOON = datetime(2026, 7, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
# Fourteen hours ahead, three and a half behind with a summer time, eleven behind.
ZONES = ["UTC", "Pacific/Kiritimati", "America/St_Johns", "Pacific/Pago_Pago"]


@pytest.fixture(params=ZONES)
def zone(request, settings):
    settings.TIME_ZONE = request.param
    assert time.tzname != ("UTC", "UTC") or request.param == "UTC"
    return ZoneInfo(request.param)


@pytest.fixture(params=[True, False], ids=["aware", "naive"])
def use_tz(request, settings):
    settings.USE_TZ = request.param
    return request.param


@pytest.mark.rule("8.4")
def test_due_times_do_not_depend_on_the_time_zone(zone, use_tz, queue, clock):
    in_an_hour = (clock.now + HOUR).astimezone(zone)
    delayed = enqueue("jobs", "delayed", delay=HOUR, ttl=HOUR)
    dated = enqueue("jobs", "dated", visible_at=in_an_hour)

    assert [m.visible_at for m in (delayed, dated)] == [clock.now + HOUR] * 2
    assert [row_of(m)["visible_at"] for m in (delayed, dated)] == [clock.now + HOUR] * 2
    assert row_of(delayed)["expires_at"] == clock.now + 2 * HOUR

    clock.advance(HOUR - timedelta(milliseconds=1))
    assert activate() == 0
    clock.advance(0.001)
    assert activate() == 2
    assert claim_ids("jobs") == [delayed.pk, dated.pk]


@pytest.mark.rule("8.4")
def test_leases_and_deaths_do_not_depend_on_the_time_zone(zone, use_tz, queue, clock):
    message = enqueue_and_claim("jobs")
    assert message.locked_until == clock.now + timedelta(seconds=30)
    assert row_of(message)["locked_until"].utcoffset() == timedelta()

    clock.advance(29.999)
    assert reap() == []
    message.complete()

    dead = dead_letter("jobs")
    assert dead.finished_at == clock.now


@pytest.mark.rule("8.4")
def test_naive_time_is_refused(zone, use_tz, queue, clock):
    with pytest.raises(ValueError, match="no time zone"):
        enqueue("jobs", None, visible_at=datetime(2026, 7, 1, 12))  # noqa: DTZ001

    if use_tz:
        assert enqueue("jobs", None, visible_at=timezone.now() + 400 * DAY).state == "scheduled"


@pytest.mark.rule("8.4")
def test_repeated_hour_of_a_time_zone_is_unambiguous(queue, clock):
    new_york = ZoneInfo("America/New_York")
    first = datetime(2026, 11, 1, 1, 30, tzinfo=new_york)

    early = enqueue("jobs", None, visible_at=first)
    late = enqueue("jobs", None, visible_at=first.replace(fold=1))

    assert row_of(late)["visible_at"] - row_of(early)["visible_at"] == HOUR


class Frozen:
    """Time frozen by freezegun, in a time zone of its own."""

    def __init__(self, offset):
        self._freezer = freezegun.freeze_time(NOON, tz_offset=offset)

    def __enter__(self):
        self._time = self._freezer.start()
        return self._time.tick

    def __exit__(self, *_):
        self._freezer.stop()


class Travelled:
    """Time frozen by time-machine."""

    def __init__(self, _offset):
        self._travel = time_machine.travel(NOON, tick=False)

    def __enter__(self):
        return self._travel.start().shift

    def __exit__(self, *_):
        self._travel.stop()


@pytest.mark.rule("8.4")
@pytest.mark.parametrize("offset", [0, -9, 14])
@pytest.mark.parametrize("tool", [Frozen, Travelled])
def test_frozen_clock_of_a_test_tool_is_used(tool, offset, use_tz, zone, make_queue):
    make_queue("jobs")
    with tool(offset) as move:
        assert clock.now_ms() == NOON.timestamp() * 1_000
        message = enqueue("jobs", None, delay=HOUR)
        assert row_of(message)["visible_at"] == NOON + HOUR

        move(HOUR - timedelta(seconds=1))
        assert activate() == 0
        assert sweeps.next_event_in("default") == 1
        move(timedelta(seconds=1))
        assert activate() == 1

        claimed = claim_one("jobs")
        assert claimed.locked_until == NOON + HOUR + timedelta(seconds=30)
        move(timedelta(seconds=29))
        assert reap() == []
        move(timedelta(seconds=1))
        assert [released.id for released in reap()] == [message.pk]


@pytest.mark.rule("8.5")
def test_clock_step_back_extends_a_lease(queue, clock):
    message = enqueue_and_claim("jobs", "at work")
    scheduled = enqueue("jobs", "scheduled", delay=60)

    clock.advance(-HOUR)
    assert reap() == []
    assert claim_ids("jobs") == []
    message.renew()  # never shorter than it was
    assert message.locked_until == clock.now + HOUR + timedelta(seconds=30)
    later = enqueue_and_claim("jobs", "sent after the step")
    later.complete()

    clock.advance(59 * 60)
    message.complete()
    assert state_of(message) == "gone"
    clock.advance(120)
    activate()
    assert claim_one("jobs").pk == scheduled.pk


@pytest.mark.rule("8.5")
def test_clock_step_back_does_not_revive_a_lost_lease(queue, clock):
    stale = enqueue_and_claim("jobs")
    clock.advance(30)
    reap()
    live = claim_one("jobs")

    clock.advance(-HOUR)

    with pytest.raises(LockLost):
        stale.complete()
    live.complete()
