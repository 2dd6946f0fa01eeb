"""The page of recurring schedules: what it shows, its actions and their permissions."""

import pytest
from django.contrib.admin.models import LogEntry
from django.urls import reverse

from django_mqlite import recurring
from django_mqlite.models import Message, MetaEntry, Schedule
from django_mqlite.worker.dispatcher import Dispatcher

from .pages import read_only, text_of, without_csrf_token

PAGE = reverse("admin:django_mqlite_schedule_changelist")
EVIL = "<script>alert(1)</script>"


@pytest.fixture(autouse=True)
def schedule(settings, queue, monkeypatch):
    monkeypatch.setattr(recurring, "_declared", {})
    settings.MQLITE = {"SCHEDULES": {"s": {"every": 60, "queue": "jobs", "overlap": "skip"}}}


@pytest.fixture
def operator(make_staff):
    return make_staff("view_schedule", "view_message", "pause_schedule", "run_schedule")


@pytest.fixture
def viewer(make_staff):
    return make_staff("view_schedule")


def act(client, action, schedule="s"):
    return client.post(PAGE, {"action": action, "schedule": schedule}, follow=True)


def test_page_shows_runs_and_outcome(operator, clock):
    dispatcher = Dispatcher.of_project("default")
    dispatcher.poll()
    clock.advance(60)
    dispatcher.poll()
    message = Message.objects.get()

    page = text_of(operator.get(PAGE))

    assert "every 60 s" in page
    assert "2025-12-31 18:02:00" in page
    assert f'/message/{message.pk}/change/">#{message.pk}</a> active' in page
    assert "runs next at 18:02:00 (in 1 min)" in page


def test_schedule_is_paused_resumed_and_run(operator):
    assert "Schedule s paused." in text_of(act(operator, "pause"))
    assert Schedule.objects.status("s").paused
    assert "Schedule s was already paused." in text_of(act(operator, "pause"))
    assert "Schedule s resumed." in text_of(act(operator, "resume"))
    assert "Schedule s was not paused." in text_of(act(operator, "resume"))
    assert "enqueued for schedule s." in text_of(act(operator, "run"))
    assert "Schedule s not run: its previous message is unfinished." in text_of(
        act(operator, "run")
    )

    assert Message.objects.count() == 1
    entries = LogEntry.objects.order_by("pk").values_list("object_repr", "change_message")
    assert list(entries) == [
        ("s", "Paused."),
        ("s", "Resumed."),
        ("s", f"Run now as message #{Message.objects.get().pk}."),
    ]


@pytest.mark.parametrize(
    ("permissions", "action"),
    [([], "pause"), (["run_schedule"], "pause"), (["pause_schedule"], "run")],
)
def test_action_requires_its_own_permission(make_staff, permissions, action):
    client = make_staff("view_schedule", *permissions)

    assert act(client, action).status_code == 403

    assert not Schedule.objects.status("s").paused
    assert not Message.objects.exists()


def test_page_requires_the_view_permission(make_staff):
    client = make_staff("pause_schedule", "run_schedule", "view_message")

    assert client.get(PAGE).status_code == 403
    assert act(client, "pause").status_code == 403


def test_viewer_is_offered_no_action_and_no_link(viewer, clock):
    Schedule.objects.run_now("s")

    page = text_of(viewer.get(PAGE))

    assert 'name="action"' not in page
    assert "/message/" not in page


def test_page_only_reads(operator):
    with read_only():
        text_of(operator.get(PAGE))


def test_action_without_csrf_token_is_refused(operator, caplog):
    response = without_csrf_token(operator).post(PAGE, {"action": "pause", "schedule": "s"})

    assert response.status_code == 403
    assert not Schedule.objects.status("s").paused


def test_forged_action_and_schedule_are_refused(operator, caplog):
    assert act(operator, "delete").status_code == 400
    assert "Nothing was changed: There is no schedule &#x27;x&#x27;" in text_of(
        act(operator, "pause", "x")
    )
    assert "Nothing was changed" in text_of(act(operator, "pause", ""))


def test_change_page_redirects_to_the_list(operator):
    Schedule.objects.pause("s")

    page = reverse("admin:django_mqlite_schedule_change", args=["schedule:s"])

    assert operator.get(page).url == PAGE


def test_error_of_the_projects_code_is_shown(operator, settings):
    recurring.periodic(name="s", every=60)(lambda message: None)

    assert "Schedule &#x27;s&#x27; is declared twice" in text_of(operator.get(PAGE))


def test_error_of_a_tick_is_escaped(operator, clock, settings):
    settings.MQLITE = {"SCHEDULES": {"s": {"every": 60, "queue": "missing"}}}
    dispatcher = Dispatcher.of_project("default")
    dispatcher.poll()
    clock.advance(60)
    dispatcher.poll()
    record = MetaEntry.objects.get(key="schedule:s")
    MetaEntry.objects.filter(pk=record.pk).update(value=record.value.replace("QueueNotFound", EVIL))

    page = text_of(operator.get(PAGE))

    assert EVIL not in page
    assert "cannot be enqueued" in page


def test_page_without_schedules_says_how_to_declare_one(operator, settings):
    settings.MQLITE = {}

    assert "There are no recurring schedules" in text_of(operator.get(PAGE))
