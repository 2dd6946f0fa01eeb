"""Rules 12.1, 12.7 and 12.8: @periodic, tasks, pause, resume, run now, and what they show."""

import re
from datetime import UTC, datetime, timedelta

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.core.management import CommandError
from django.db import connection
from django.test.utils import CaptureQueriesContext

from django_mqlite import ScheduleNotFound, handlers, periodic, recurring
from django_mqlite.checks import check_database, check_schedules, check_settings
from django_mqlite.doctor import diagnose, facts
from django_mqlite.models import Message, MetaEntry, Schedule
from django_mqlite.task_backend.compat import BaseTaskBackend, task
from django_mqlite.testing import drain
from django_mqlite.verbs.health import health
from django_mqlite.worker.dispatcher import Dispatcher
from tests.integration.mqlite_command.calls import answer, failed, mqlite

pytestmark = pytest.mark.django_db(transaction=True)


@task(queue_name="jobs")
def report(day, *, full=False):
    return f"{day} {full}"


def handle(message):
    """Handle a message of the queue "jobs"."""


REPORT = f"{__name__}.report"


@pytest.fixture(autouse=True)
def _nothing_declared(monkeypatch):
    monkeypatch.setattr(recurring, "_declared", {})
    monkeypatch.setattr(handlers, "_handlers", {})


@pytest.fixture
def declare(settings, queue):
    """Declare the only schedule in settings, "s", by default each minute in the queue "jobs"."""

    def declare(**options):
        timing = {} if "cron" in options else {"every": 60}
        target = {} if "task" in options else {"queue": "jobs"}
        settings.MQLITE = {"SCHEDULES": {"s": {**timing, **target, **options}}}
        dispatcher = Dispatcher.of_project("default")
        dispatcher.poll()
        return dispatcher

    return declare


def tick(dispatcher, clock, seconds=60):
    clock.advance(seconds)
    dispatcher.poll()


def code():
    return Schedule.objects.status("s").explanation.code


def last_id():
    return Message.objects.order_by("-pk").values_list("pk", flat=True)[0]


def text():
    return Schedule.objects.status("s").explanation.text


# 12.1: tasks and @periodic


@pytest.mark.rule("12.1")
def test_tick_of_a_task_enqueues_the_task(declare, clock):
    dispatcher = declare(task=REPORT, args=["monday"], kwargs={"full": True}, priority=3)
    tick(dispatcher, clock)

    (message,) = Message.objects.all()
    assert (message.subject, message.priority) == (REPORT, 3)
    assert message.properties["scheduled_for"] == "2026-01-01T00:01:00+00:00"
    (done,) = drain("jobs")
    assert report.get_result(done.message_id).return_value == "monday True"


@pytest.mark.rule("12.1")
def test_periodic_above_a_task_declares_a_schedule(queue):
    periodic(cron="0 3 * * *", args=["monday"])(report)

    schedule = recurring.all_schedules()[REPORT]

    assert (schedule.task, schedule.args) == (REPORT, ("monday",))


@pytest.mark.rule("12.1")
def test_periodic_below_a_task_declares_a_schedule(queue):
    periodic(cron="0 3 * * *", args=["monday"])(report.func)

    assert recurring.all_schedules()[REPORT].task == REPORT


@pytest.mark.rule("12.1")
@pytest.mark.parametrize("first", ["handler", "periodic"])
def test_periodic_beside_a_handler_declares_a_schedule(queue, first):
    decorators = [handlers.handler("jobs"), periodic(name="ping", every=60, data={"a": 1})]
    for decorate in decorators if first == "handler" else reversed(decorators):
        decorate(handle)

    schedule = recurring.all_schedules()["ping"]

    assert (schedule.queue, schedule.data) == ("jobs", {"a": 1})


@pytest.mark.rule("12.1")
def test_periodic_on_anything_else_is_refused(queue):
    periodic(every=60)(handle)

    with pytest.raises(ImproperlyConfigured, match="must decorate a task, or the handler of one"):
        recurring.all_schedules()


@pytest.mark.rule("12.1")
def test_periodic_with_an_invalid_option_is_refused_at_import(queue):
    with pytest.raises(ImproperlyConfigured, match=r"@periodic 'x'\['cron'\] is not a valid cron"):
        periodic(name="x", cron="every day")(handle)


@pytest.mark.rule("12.1")
def test_name_of_two_decorators_is_refused(queue):
    periodic(name="twice", every=60)(report)

    with pytest.raises(ImproperlyConfigured, match=r"Schedule 'twice' is declared twice: at .*py"):
        periodic(name="twice", every=60)(report)


@pytest.mark.rule("12.1")
def test_name_of_a_decorator_and_of_settings_is_refused(declare):
    declare()
    periodic(name="s", every=60)(report)

    with pytest.raises(ImproperlyConfigured, match=r"twice: in MQLITE\['SCHEDULES'\] and at .*py"):
        recurring.all_schedules()


@pytest.mark.rule("12.1")
def test_time_zone_of_a_schedule_is_the_projects_by_default(declare, settings):
    settings.TIME_ZONE = "Asia/Tokyo"
    declare(cron="0 3 * * *")

    assert Schedule.objects.status("s").next_run == datetime(2026, 1, 1, 18, tzinfo=UTC)


# 12.7


@pytest.mark.rule("12.7")
def test_paused_schedule_enqueues_nothing_and_catches_up_on_nothing(declare, clock):
    dispatcher = declare(catch_up="all")

    assert Schedule.objects.pause("s")
    for _ in range(3):
        tick(dispatcher, clock)
    assert not Message.objects.exists()
    assert Schedule.objects.resume("s")
    dispatcher.poll()
    assert not Message.objects.exists()
    tick(dispatcher, clock)

    assert Message.objects.count() == 1


@pytest.mark.rule("12.7")
def test_pause_stays_over_restarts_and_changes(declare, clock):
    declare()
    Schedule.objects.pause("s")

    tick(declare(), clock)
    tick(declare(every=30), clock)

    assert not Message.objects.exists()
    assert code() == "paused"


@pytest.mark.rule("12.7")
def test_pausing_twice_and_resuming_twice_change_nothing(declare):
    declare()

    assert [Schedule.objects.pause("s"), Schedule.objects.pause("s")] == [True, False]
    assert [Schedule.objects.resume("s"), Schedule.objects.resume("s")] == [True, False]


@pytest.mark.rule("12.7")
def test_run_now_enqueues_at_once_and_keeps_the_next_tick(declare, clock):
    dispatcher = declare()
    clock.advance(10)

    message = Schedule.objects.run_now("s")

    assert Message.objects.get().properties["scheduled_for"] == "2026-01-01T00:00:10+00:00"
    assert Schedule.objects.status("s").last_message == message.pk
    tick(dispatcher, clock, 50)
    assert Message.objects.count() == 2


@pytest.mark.rule("12.7")
def test_run_now_works_before_any_worker_and_while_paused(declare, settings):
    declare()
    MetaEntry.objects.filter(key="schedule:s").delete()

    assert Schedule.objects.run_now("s")
    Schedule.objects.pause("s")
    assert Schedule.objects.run_now("s")


@pytest.mark.rule("12.6")
@pytest.mark.rule("12.7")
def test_run_now_does_not_overlap_where_the_schedule_skips(declare):
    declare(overlap="skip")
    assert Schedule.objects.run_now("s")

    assert Schedule.objects.run_now("s") is None

    assert Message.objects.count() == 1


@pytest.mark.rule("12.7")
@pytest.mark.parametrize("verb", ["status", "pause", "resume", "run_now"])
def test_unknown_schedule_is_refused_with_a_suggestion(declare, verb):
    declare()

    with pytest.raises(ScheduleNotFound, match=r"There is no schedule 'ss'\. Did you mean 's'\?"):
        getattr(Schedule.objects, verb)("ss")


@pytest.mark.rule("12.7")
@pytest.mark.parametrize(
    "bypass",
    [
        lambda: Schedule.objects.create(key="schedule:s", value="{}"),
        lambda: Schedule.objects.update(value="{}"),
    ],
    ids=["create", "update"],
)
def test_record_of_a_schedule_changes_only_by_verbs(declare, bypass):
    declare()

    with pytest.raises(TypeError, match=r"would bypass the queue's rules\. Use"):
        bypass()


# 12.8


@pytest.mark.rule("12.8")
def test_status_shows_next_run_last_run_and_what_became_of_it(declare, clock):
    dispatcher = declare()
    assert Schedule.objects.status("s").last_outcome is None
    tick(dispatcher, clock)
    (claimed,) = Message.objects.claim("jobs")
    claimed.complete()

    (status,) = Schedule.objects.statuses()

    assert status.next_run == clock.now + timedelta(minutes=1)
    assert status.last_run == clock.now
    assert status.last_outcome.code == "completed_and_gone"


@pytest.mark.rule("12.8")
def test_explanation_of_a_schedule_names_the_reason(declare, clock, settings):
    dispatcher = declare(overlap="skip", every=60)
    assert (code(), text()) == ("waiting", "runs next at 18:01:00 (in 1 min)")
    tick(dispatcher, clock)
    tick(dispatcher, clock)
    assert code() == "skipping"
    assert f"was skipped at 18:02:00 (0 s ago), because #{last_id()} is active" in text()
    clock.advance(120)
    assert code() == "due"
    assert "waits for a reaper; no reaper is running" in text()
    clock.advance(-3_600)
    Message.objects.claim("jobs")[0].complete()
    assert code() == "clock_set_back"
    Schedule.objects.pause("s")
    assert code() == "paused"
    settings.MQLITE = {"SCHEDULES": {"s": {"every": 90, "queue": "jobs"}}}
    assert code() == "changed"
    assert text() == ("has changed: the running workers still have “every 60 s”, so restart them")
    MetaEntry.objects.filter(key="schedule:s").delete()
    assert code() == "not_started"


@pytest.mark.rule("12.8")
def test_explanation_names_the_error_of_a_failing_schedule(declare, clock):
    tick(declare(queue="missing"), clock)

    assert code() == "failing"
    assert text().startswith("its message cannot be enqueued: QueueNotFound: There is no queue")


@pytest.mark.rule("12.8")
def test_statuses_only_read(declare):
    declare()

    with CaptureQueriesContext(connection) as captured:
        Schedule.objects.statuses()

    assert {query["sql"].split()[0] for query in captured} == {"SELECT"}


@pytest.mark.rule("12.8")
def test_command_lists_and_shows_schedules(declare, clock):
    tick(declare(), clock)

    heads, row = mqlite("schedules").splitlines()
    assert heads.split("  ")[0] == "schedule"
    assert re.split("  +", row) == [
        "s",
        "waiting",
        "in 1 min",
        "0 s ago",
        f"#{last_id()} active",
        "every 60 s",
        "jobs",
    ]
    (listed,) = answer("schedules")["schedules"]
    assert (listed["schedule"], listed["last_message"]) == ("s", last_id())
    assert "schedule s: runs next at 18:02:00 (in 1 min)" in mqlite("schedules", "s")
    assert answer("schedules", "s")["why"]["code"] == "waiting"


@pytest.mark.rule("12.8")
def test_command_without_schedules_says_how_to_declare_one(queue):
    assert mqlite("schedules") == (
        "There are no recurring schedules. Declare them in MQLITE['SCHEDULES'] or with @periodic.\n"
    )


@pytest.mark.rule("12.7")
def test_command_pauses_resumes_and_runs(declare):
    declare(overlap="skip")

    assert mqlite("schedules", "s", "pause") == "Schedule s paused.\n"
    assert mqlite("schedules", "s", "pause") == "Schedule s was already paused.\n"
    assert answer("schedules", "s", "resume") == {"schedule": "s", "paused": False, "changed": True}
    assert mqlite("schedules", "s", "resume") == "Schedule s was not paused.\n"
    ran = mqlite("schedules", "s", "run")
    assert ran == f"#{last_id()} enqueued in queue jobs for schedule s.\n"
    with pytest.raises(CommandError, match=r"Schedule s not run: its previous message #\d+ is unf"):
        mqlite("schedules", "s", "run")
    with pytest.raises(CommandError, match="There is no schedule 'x'"):
        mqlite("schedules", "x", "run")


@pytest.mark.rule("12.8")
def test_why_explains_a_schedule_by_its_name(declare):
    declare()

    assert mqlite("why", "s") == "schedule s: runs next at 18:01:00 (in 1 min)\n"
    assert answer("why", "s")["code"] == "waiting"
    Message.objects.enqueue("jobs", None, message_id="s")
    assert "schedule" not in mqlite("why", "s")


@pytest.mark.rule("12.8")
def test_check_reports_an_invalid_expression(settings):
    settings.MQLITE = {"SCHEDULES": {"s": {"cron": "* * *", "queue": "jobs"}}}

    (error,) = check_settings()

    assert error.id == "mqlite.E001"
    assert "MQLITE['SCHEDULES']['s']['cron'] is not a valid cron expression: '* * *'" in error.msg


@pytest.mark.rule("12.8")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"task": "shop.tasks.missing"}, "There is no task 'shop.tasks.missing' in this code"),
        ({"task": REPORT}, "report() does not take these arguments: missing a required argument"),
        ({"task": REPORT, "args": [1], "queue": "else where"}, "Invalid queue name"),
    ],
)
def test_check_reports_a_task_that_cannot_be_enqueued(settings, options, message):
    settings.MQLITE = {"SCHEDULES": {"s": {"every": 60, **options}}}

    (error,) = check_settings() or check_schedules()

    assert message in error.msg


@pytest.mark.rule("12.8")
def test_check_reports_a_task_of_another_backend(settings):
    package = BaseTaskBackend.__module__.rpartition(".")[0]
    settings.TASKS = {"default": {"BACKEND": f"{package}.immediate.ImmediateBackend", "QUEUES": []}}
    settings.MQLITE = {"SCHEDULES": {"s": {"every": 60, "task": REPORT, "args": [1]}}}

    (error,) = check_schedules()

    assert error.id == "mqlite.E011"
    assert "backend is ImmediateBackend ('default'), and not MqliteBackend" in error.msg


@pytest.mark.rule("12.8")
def test_check_reports_two_schedules_of_the_same_name(settings):
    settings.MQLITE = {"SCHEDULES": {"s": {"every": 60, "queue": "jobs"}}}
    periodic(name="s", every=60)(report)

    (error,) = check_schedules()

    assert error.id == "mqlite.E011"
    assert "Schedule 's' is declared twice" in error.msg


@pytest.mark.rule("12.8")
def test_check_reports_an_unknown_queue(settings, queue):
    settings.MQLITE = {"SCHEDULES": {"s": {"every": 60, "queue": "job"}}}

    (warning,) = check_database(databases=["default"])

    assert warning.id == "mqlite.W015"
    assert (
        "queue 'job', which does not exist and is not in MQLITE['QUEUES']; did you mean 'jobs'?"
        in (warning.msg)
    )


# Health


def problems():
    return [(problem.code, problem.text) for problem in health("default").schedule_problems]


@pytest.mark.rule("12.8")
def test_overdue_schedule_is_a_problem_of_health_and_doctor(declare, clock):
    declare()
    clock.advance(60 + 15)
    assert problems() == []

    clock.advance(1)

    text = "Schedule s has been due for 16 s, and no worker or reaper has dispatched it."
    assert problems() == [("overdue", text)]
    assert f"PROBLEM: {text}\n" in failed("health")
    (finding,) = (f for f in diagnose("default", thorough=False).findings if f.text == text)
    assert (finding.level, finding.id) == ("warning", "unhealthy")
    assert "runreaper" in finding.advice


@pytest.mark.rule("12.8")
def test_dispatched_schedule_is_no_problem(declare, clock):
    dispatcher = declare()

    tick(dispatcher, clock, 76)

    assert problems() == []


@pytest.mark.rule("12.8")
def test_paused_schedule_is_a_fact_and_no_problem(declare, clock):
    declare()
    Schedule.objects.pause("s")
    clock.advance(3_600)

    assert problems() == []
    assert answer("health")["paused_schedules"] == ["s"]
    assert "paused schedules: s\n" in mqlite("health")
    assert facts(diagnose("default", thorough=False))["paused_schedules"] == ["s"]


@pytest.mark.rule("12.8")
def test_schedule_that_cannot_enqueue_is_a_problem(declare, clock, queue):
    dispatcher = declare()
    queue.__class__.objects.delete_queue("jobs", everything=True)

    tick(dispatcher, clock)

    ((code, text),) = problems()
    assert code == "failing"
    assert text.startswith("Schedule s cannot enqueue its message: QueueNotFound: ")


@pytest.mark.rule("12.8")
def test_health_ignores_schedules_whose_code_cannot_be_imported(declare, clock, settings):
    """The system checks report the module; health is about the queues."""
    declare()
    clock.advance(3_600)
    settings.MQLITE = {**settings.MQLITE, "HANDLERS": ["no.such.module"]}

    assert problems() == []
