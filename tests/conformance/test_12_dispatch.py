"""Rules 12.2 to 12.6 and 12.9: what the ticks of a schedule enqueue, and that each does so once."""

from datetime import UTC, datetime, timedelta

import pytest
from django.db import IntegrityError, OperationalError, connection, transaction
from django.test.utils import CaptureQueriesContext

from django_mqlite.models import Message, MetaEntry, Schedule
from django_mqlite.schedules import read_schedule
from django_mqlite.verbs import schedules as verbs
from django_mqlite.verbs.schedules import AnotherProcessWasFaster
from django_mqlite.worker.dispatcher import Dispatcher
from django_mqlite.worker.reaper import Reaper

pytestmark = pytest.mark.django_db(transaction=True)

HOUR = timedelta(hours=1)


@pytest.fixture
def declare(settings, queue):
    """Declare the only schedule of the project, "s", which enqueues in the queue "jobs"."""

    def declare(**options):
        options = {"queue": "jobs", "data": {"n": 1}, **options}
        if "cron" not in options:
            options = {"every": 60, **options}
        settings.MQLITE = {"SCHEDULES": {"s": options}}
        return Dispatcher.of_project("default")

    return declare


def scheduled_for(messages=None):
    """The tick of each message, in minutes and seconds."""
    messages = Message.objects.order_by("pk") if messages is None else messages
    ticks = [datetime.fromisoformat(message.properties["scheduled_for"]) for message in messages]
    return [f"{tick:%M:%S}" for tick in ticks]


def finish_all():
    while messages := Message.objects.claim("jobs", limit=100):
        Message.objects.complete_many(messages)


# 12.2


@pytest.mark.rule("12.2")
def test_due_tick_enqueues_one_message(declare, clock):
    dispatcher = declare()
    dispatcher.poll()
    clock.advance(60)

    dispatcher.poll()

    (message,) = Message.objects.all()
    assert (message.queue, message.data) == ("jobs", {"n": 1})


@pytest.mark.rule("12.2")
def test_tick_is_not_due_before_its_time(declare, clock):
    dispatcher = declare()
    dispatcher.poll()
    clock.advance(59.999)

    assert dispatcher.poll() == pytest.approx(0.001)

    assert not Message.objects.exists()


@pytest.mark.rule("12.2")
def test_several_processes_enqueue_each_tick_once(declare, clock):
    dispatchers = [declare() for _ in range(4)]
    for dispatcher in dispatchers:
        dispatcher.poll()

    for _ in range(5):
        clock.advance(60)
        for dispatcher in dispatchers:
            dispatcher.poll()

    assert scheduled_for() == ["01:00", "02:00", "03:00", "04:00", "05:00"]


@pytest.mark.rule("12.2")
def test_new_process_does_not_repeat_a_tick(declare, clock):
    declare().poll()
    clock.advance(60)
    declare().poll()

    declare().poll()
    clock.advance(30)
    declare().poll()

    assert scheduled_for() == ["01:00"]


@pytest.mark.rule("12.2")
def test_message_and_position_are_one_transaction(declare, clock, monkeypatch):
    dispatcher = declare()
    dispatcher.poll()
    before = MetaEntry.objects.get(key="schedule:s").value
    clock.advance(60)

    def fail(*_arguments, **_options):
        raise AnotherProcessWasFaster

    with monkeypatch.context() as patched:
        patched.setattr(verbs, "_store", fail)
        dispatcher.poll()
    assert not Message.objects.exists()
    assert MetaEntry.objects.get(key="schedule:s").value == before

    dispatcher.poll()

    assert scheduled_for() == ["01:00"]


@pytest.mark.rule("12.2")
def test_record_that_changed_since_it_was_read_is_not_overwritten(declare, clock):
    declare().poll()
    schedule = read_schedule("s", {"every": 60, "queue": "jobs"}, "S", timezone="UTC")
    stale = MetaEntry.objects.get(key="schedule:s").value
    clock.advance(60)
    declare().poll()
    now = clock.now_ms()

    with pytest.raises(AnotherProcessWasFaster), transaction.atomic():
        record = verbs._parse(stale)
        record = verbs._enqueue_tick(connection, schedule, record, now, now=now)
        verbs._store(connection, "s", stale, record, now=now)

    assert scheduled_for() == ["01:00"]


@pytest.mark.rule("12.2")
def test_reaper_dispatches_and_waits_until_the_next_tick(declare, clock):
    reaper = Reaper("default", declare(every=1))
    assert reaper.poll() == 1.0
    clock.advance(1.25)

    assert reaper.poll() == 0.75

    assert scheduled_for() == ["00:01"]


@pytest.mark.rule("12.2")
def test_process_queries_nothing_until_a_tick_is_due(declare, clock):
    dispatcher = declare()
    dispatcher.poll()
    clock.advance(30)

    with CaptureQueriesContext(connection) as captured:
        assert dispatcher.poll() == 30.0

    assert captured.captured_queries == []


@pytest.mark.rule("12.2")
def test_process_that_was_slower_only_reads(declare, clock):
    fast, slow = declare(), declare()
    fast.poll()
    slow.poll()
    clock.advance(60)
    fast.poll()

    with CaptureQueriesContext(connection) as captured:
        slow.poll()

    assert [query["sql"].split()[0] for query in captured] == ["SELECT"]


@pytest.mark.rule("12.2")
def test_project_without_schedules_runs_no_statement_more(settings, queue):
    settings.MQLITE = {}
    with_dispatcher = Reaper("default", Dispatcher.of_project("default"))
    without = Reaper("default")
    with_dispatcher.poll()  # the first one reads which schedules were removed
    without.poll()

    with CaptureQueriesContext(connection) as expected:
        without.poll()
    with CaptureQueriesContext(connection) as captured:
        with_dispatcher.poll()

    assert [query["sql"] for query in captured] == [query["sql"] for query in expected]


# 12.3


@pytest.mark.rule("12.3")
def test_message_has_schedule_and_tick_in_its_properties(declare, clock):
    dispatcher = declare(cron="0 3 * * *", timezone="Europe/Berlin", properties={"own": "value"})
    dispatcher.poll()
    clock.advance(HOUR * 3)

    dispatcher.poll()

    (message,) = Message.objects.all()
    assert message.properties == {
        "own": "value",
        "schedule": "s",
        "scheduled_for": "2026-01-01T02:00:00+00:00",
    }


@pytest.mark.rule("12.3")
def test_options_of_the_message_are_those_of_the_schedule(declare, clock):
    dispatcher = declare(subject="tick", group_id="g", ttl=30, max_delivery_count=2)
    dispatcher.poll()
    clock.advance(60)

    dispatcher.poll()

    (message,) = Message.objects.all()
    assert (message.subject, message.group_id, message.max_delivery_count) == ("tick", "g", 2)
    assert message.expires_at == clock.now + timedelta(seconds=30)


@pytest.mark.rule("12.3")
def test_ticks_with_the_same_data_are_no_duplicates(declare, clock, make_queue):
    make_queue("windowed", dedup_window=3_600)
    dispatcher = declare(queue="windowed")
    dispatcher.poll()

    for _ in range(3):
        clock.advance(60)
        dispatcher.poll()

    assert Message.objects.filter(queue="windowed").count() == 3


# 12.4


@pytest.mark.rule("12.4")
@pytest.mark.parametrize(
    ("catch_up", "expected"),
    [
        ("latest", ["10:00"]),
        ("none", ["10:00"]),
        ("all", [f"{minute:02}:00" for minute in range(1, 11)]),
    ],
)
def test_missed_ticks_are_caught_up_as_declared(declare, clock, catch_up, expected):
    declare(catch_up=catch_up).poll()
    clock.advance(630)

    declare(catch_up=catch_up).poll()

    assert scheduled_for() == expected


@pytest.mark.rule("12.4")
def test_tick_that_is_a_minute_late_is_missed_without_catch_up(declare, clock):
    declare(every=600, catch_up="none").poll()
    clock.advance(661)
    dispatcher = declare(every=600, catch_up="none")
    dispatcher.poll()
    assert not Message.objects.exists()

    clock.advance(539)
    dispatcher.poll()

    assert scheduled_for() == ["20:00"]


@pytest.mark.rule("12.4")
def test_missed_ticks_are_logged(declare, clock, caplog):
    declare().poll()
    clock.advance(630)

    declare().poll()

    assert "schedule s: missed ticks were not enqueued" in caplog.text


# 12.5


@pytest.mark.rule("12.5")
def test_new_schedule_starts_with_its_next_tick(declare, clock):
    clock.advance(90)
    dispatcher = declare()

    assert dispatcher.poll() == 30.0

    assert not Message.objects.exists()


@pytest.mark.rule("12.5")
def test_changed_schedule_forgets_its_old_ticks(declare, clock):
    declare(every=600).poll()
    clock.advance(3_590)

    dispatcher = declare(every=60)
    dispatcher.poll()
    assert not Message.objects.exists()
    clock.advance(10)
    dispatcher.poll()

    assert scheduled_for() == ["00:00"]


@pytest.mark.rule("12.5")
def test_changed_data_forgets_no_tick(declare, clock):
    declare().poll()
    clock.advance(60)

    declare(data={"n": 2}).poll()

    assert [message.data for message in Message.objects.all()] == [{"n": 2}]


@pytest.mark.rule("12.5")
def test_process_with_an_older_definition_stops_dispatching(declare, clock):
    old = declare(every=60)
    old.poll()
    new = declare(every=90)
    new.poll()

    for _ in range(6):
        clock.advance(30)
        old.poll()
        new.poll()

    assert scheduled_for() == ["01:30", "03:00"]


@pytest.mark.rule("12.5")
def test_removed_schedule_leaves_nothing(declare, clock, settings):
    old = declare()
    old.poll()
    settings.MQLITE = {}

    Dispatcher.of_project("default").poll()

    assert not Schedule.objects.filter(key__startswith="schedule:").exists()
    clock.advance(60)
    assert old.poll() is None
    assert not Message.objects.exists()


@pytest.mark.rule("12.5")
def test_process_with_an_older_definition_stays_idle_after_a_clock_step(declare, clock):
    old = declare(every=60)
    old.poll()
    clock.advance(60)
    old.poll()
    new = declare(every=90)
    new.poll()

    clock.advance(-30)
    old.poll()

    assert old.poll() is None
    assert Schedule.objects.status("s").explanation.code != "changed"


# 12.6


@pytest.mark.rule("12.6")
def test_tick_is_skipped_while_the_previous_message_is_unfinished(declare, clock):
    dispatcher = declare(overlap="skip")
    dispatcher.poll()

    for _ in range(3):
        clock.advance(60)
        dispatcher.poll()
    assert scheduled_for() == ["01:00"]
    finish_all()
    clock.advance(60)
    dispatcher.poll()

    assert scheduled_for() == ["04:00"]


@pytest.mark.rule("12.6")
@pytest.mark.parametrize("state", ["locked", "retrying", "deferred"])
def test_every_unfinished_state_skips_the_tick(declare, clock, state):
    dispatcher = declare(overlap="skip")
    dispatcher.poll()
    clock.advance(60)
    dispatcher.poll()
    (claimed,) = Message.objects.claim("jobs", lock_duration=HOUR)
    if state == "retrying":
        claimed.abandon(delay=HOUR)
    elif state == "deferred":
        claimed.defer()

    clock.advance(60)
    dispatcher.poll()

    assert scheduled_for() == ["01:00"]


@pytest.mark.rule("12.6")
@pytest.mark.parametrize("state", ["completed", "dead letter"])
def test_finished_message_skips_no_tick(declare, clock, state):
    dispatcher = declare(overlap="skip")
    dispatcher.poll()
    clock.advance(60)
    dispatcher.poll()
    (claimed,) = Message.objects.claim("jobs")
    claimed.complete() if state == "completed" else claimed.reject("Broken")

    clock.advance(60)
    dispatcher.poll()

    assert scheduled_for(Message.objects.filter(state="active")) == ["02:00"]


@pytest.mark.rule("12.6")
def test_messages_overlap_by_default(declare, clock):
    dispatcher = declare()
    dispatcher.poll()

    for _ in range(2):
        clock.advance(60)
        dispatcher.poll()

    assert scheduled_for() == ["01:00", "02:00"]


# 12.9


@pytest.mark.rule("12.9")
@pytest.mark.parametrize("restarted", [False, True], ids=["running", "restarted"])
def test_clock_step_back_enqueues_no_tick_twice(declare, clock, restarted):
    dispatcher = declare(every=600)
    dispatcher.poll()
    clock.advance(HOUR * 3)
    dispatcher.poll()
    assert scheduled_for() == ["00:00"]

    clock.advance(HOUR * -2)
    if restarted:
        dispatcher = declare(every=600)
    for _ in range(2 * 6):
        dispatcher.poll()
        clock.advance(600)
    assert len(scheduled_for()) == 1
    clock.advance(600)
    dispatcher.poll()

    assert scheduled_for() == ["00:00", "10:00"]


@pytest.mark.rule("12.9")
def test_clock_step_forward_and_back_enqueues_each_tick_once(declare, clock):
    dispatcher = declare(every=600, catch_up="all")
    dispatcher.poll()
    clock.advance(HOUR * 2)
    dispatcher.poll()
    clock.advance(HOUR * -2)

    for _ in range(3 * 6):
        clock.advance(600)
        dispatcher.poll()

    ticks = [message.properties["scheduled_for"] for message in Message.objects.order_by("pk")]
    start = datetime(2026, 1, 1, tzinfo=UTC)
    assert ticks == [(start + timedelta(minutes=10 * n)).isoformat() for n in range(1, 3 * 6 + 1)]


# What goes wrong


def test_failing_tick_is_kept_and_tried_again(declare, clock, caplog, make_queue):
    dispatcher = declare(queue="later")
    dispatcher.poll()
    clock.advance(60)

    assert dispatcher.poll() == 60.0
    assert "schedule s: a tick cannot be enqueued and will be tried again: QueueNotFound" in (
        caplog.text
    )
    make_queue("later")
    clock.advance(60)
    dispatcher.poll()

    assert scheduled_for() == ["02:00"]
    assert Schedule.objects.status("s").explanation.code == "waiting"


class Unspeakable(Exception):
    def __str__(self):
        raise RuntimeError("no text")


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (Unspeakable(), "Unspeakable"),
        (IntegrityError("refused by a trigger"), "IntegrityError: refused by a trigger"),
    ],
)
def test_error_of_any_kind_fails_only_its_tick(declare, clock, monkeypatch, error, text):
    dispatcher = declare()
    dispatcher.poll()
    clock.advance(60)

    def fail(*_arguments):
        raise error

    with monkeypatch.context() as patched:
        patched.setattr(verbs, "_enqueue", fail)
        assert dispatcher.poll() == 60.0
    facts = Schedule.objects.status("s").explanation.facts
    assert (facts["error"], facts["next_run"]) == (text, "2026-01-01T00:01:00+00:00")

    clock.advance(60)
    dispatcher.poll()

    assert scheduled_for() == ["02:00"]


def test_database_that_fails_is_left_to_the_worker(declare, clock, monkeypatch):
    dispatcher = declare()
    dispatcher.poll()
    clock.advance(60)

    def fail(*_arguments):
        raise OperationalError("database is locked")

    monkeypatch.setattr(verbs, "_enqueue", fail)

    with pytest.raises(OperationalError):
        dispatcher.poll()


def test_failing_schedule_does_not_stop_the_others(settings, queue, clock):
    settings.MQLITE = {
        "SCHEDULES": {
            "broken": {"every": 60, "queue": "missing"},
            "sound": {"every": 60, "queue": "jobs"},
        }
    }
    dispatcher = Dispatcher.of_project("default")
    dispatcher.poll()
    clock.advance(60)

    dispatcher.poll()

    assert [message.properties["schedule"] for message in Message.objects.all()] == ["sound"]


@pytest.mark.parametrize(
    "damaged",
    [
        "", "no JSON", "[]", "{}", '{"more": 1}',
        '{"definition": 1, "position": "x"}',
        '{"definition": "every 60 s", "position": 9e99}',
        '{"definition": "every 60 s", "position": -5}',
        '{"definition": "every 60 s", "position": 253402300799999}',
        '{"definition": "every 60 s", "position": 1, "last_id": 99999999999999999999}',
        '{"definition": "every 60 s", "position": 1, "paused": 1}',
    ],
)  # fmt: skip
def test_damaged_record_starts_again(declare, clock, damaged):
    declare().poll()
    MetaEntry.objects.filter(key="schedule:s").update(value=damaged)

    dispatcher = declare()
    dispatcher.poll()
    clock.advance(60)
    dispatcher.poll()

    assert scheduled_for() == ["01:00"]
