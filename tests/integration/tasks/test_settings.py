"""TASKS alone is enough: queues are made, served and checked."""

import subprocess
import sys
from datetime import timedelta

import django
import pytest
from asgiref.sync import async_to_sync
from django.core.checks import run_checks
from django.core.exceptions import ImproperlyConfigured
from django.core.management import call_command

from django_mqlite import handlers
from django_mqlite.apps import imported_backends
from django_mqlite.conf import get_settings
from django_mqlite.handlers import Handler, queues_of_kinds
from django_mqlite.models import Queue
from django_mqlite.task_backend import Draft
from django_mqlite.task_backend.compat import task_backends
from django_mqlite.testing import drain
from django_mqlite.worker.watchdogs import NotReady, served_queues

from . import calls

pytestmark = pytest.mark.django_db

BACKEND = "django_mqlite.task_backend.MqliteBackend"


@pytest.fixture
def use(settings):
    """Sets TASKS to one backend with these entries, or to what is given."""

    def use(tasks=None, **entries):
        settings.TASKS = tasks or {"default": {"BACKEND": BACKEND, **entries}}
        return task_backends["default"]

    return use


def found(ids=("mqlite.E005", "mqlite.E006", "mqlite.W012")):
    return [(check.id, check.msg) for check in run_checks() if check.id in ids]


# Queues


def test_migrate_makes_the_queues_that_tasks_name(use):
    use(QUEUES=["mails", "reports"])

    call_command("migrate", verbosity=0)

    assert set(Queue.objects.values_list("name", flat=True)) >= {"mails", "reports"}


def test_without_queues_it_is_the_frameworks_default(use):
    use()

    Queue.objects.sync()

    assert Queue.objects.get().name == "default"
    assert calls.note.enqueue().status == "READY"


def test_a_queue_that_is_declared_as_well_is_as_it_is_declared(use, settings):
    use(QUEUES=["mails"])
    settings.MQLITE = {"QUEUES": {"mails": {"lock_duration": 99}}}

    assert Queue.objects.sync() == ["mails"]

    assert Queue.objects.get().lock_duration == timedelta(seconds=99)


def test_a_queue_that_is_there_is_left_as_it_is(use, make_queue):
    make_queue("mails", lock_duration=99)
    use(QUEUES=["mails"])

    assert Queue.objects.sync() == []

    assert Queue.objects.get().lock_duration == timedelta(seconds=99)


def test_a_worker_serves_the_queues_of_tasks_by_default(use, make_queue):
    for name in ("jobs", "mails", "others"):
        make_queue(name)
    use(QUEUES=["mails"])
    found = {"jobs": Handler(queue="jobs", function=print)}

    assert served_queues("default", found, (), ()) == ("jobs", "mails")
    assert served_queues("default", found, ["mails"], ()) == ("mails",)
    assert served_queues("default", found, (), ["mails"]) == ("jobs",)
    with pytest.raises(NotReady, match=r"'others' has no handler.*QUEUES of a tasks backend"):
        served_queues("default", found, ["others"], ())


def test_the_queues_of_every_entry_with_this_backend_count(use):
    use(
        {
            "default": {"BACKEND": BACKEND, "QUEUES": ["a"]},
            "other": {"BACKEND": BACKEND, "QUEUES": ["b"]},
            "dummy": {"BACKEND": dummy(), "QUEUES": ["c"]},
        }
    )

    assert queues_of_kinds() == {"a", "b"}


def test_with_empty_queues_each_declared_one_is_a_tasks_queue(use, settings):
    use(QUEUES=[])
    settings.MQLITE = {"QUEUES": {"mails": {}, "reports": {}}}

    assert queues_of_kinds() == {"mails", "reports"}


def test_two_entries_share_a_queue_and_each_has_its_own_options(use, make_queue, run_all):
    make_queue("default")
    use(
        {
            "default": {"BACKEND": BACKEND},
            "brief": {"BACKEND": BACKEND, "OPTIONS": {"RESULT_TTL": 60}},
        }
    )
    results = [calls.note.using(backend=alias).enqueue() for alias in ("default", "brief")]
    run_all()

    kept = []
    for result in results:
        result.refresh()
        (row,) = message_times(result)
        kept.append((result.backend, result.task.backend, row))
    assert kept == [
        ("default", "default", timedelta(days=7)),
        ("brief", "brief", timedelta(minutes=1)),
    ]


def message_times(result):
    from django_mqlite.models import Message  # noqa: PLC0415 - for this one question

    for message in Message.objects.filter(message_id=result.id):
        yield message.kept_until - message.finished_at


# Loading


def enqueue_async(calls_):
    return async_to_sync(calls.note.aenqueue_many)(calls_)


def dummy():
    package = task_backends.__class__.__module__.partition(".tasks")[0]
    return f"{package}.{'tasks.' if package == 'django' else ''}backends.dummy.DummyBackend"


def test_the_backend_is_loaded_when_the_app_is_ready():
    """In a process of its own: here it is loaded already."""
    code = (
        "import django; django.setup(); from django_mqlite.handlers import _kinds; print(*_kinds)"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "application/vnd.django-mqlite.task+json"


def test_without_a_framework_it_is_said_what_to_install():
    """Django 6.0 and later bring theirs along, and need no package."""
    code = (
        "import sys; sys.modules['django_tasks'] = None; "
        "from django.conf import settings; settings.configure(); "
        "import django_mqlite.task_backend"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    if django.VERSION >= (6, 0):
        assert done.returncode == 0, done.stderr
    else:
        assert "ImproperlyConfigured: Tasks need Django 6.0 or later, or" in done.stderr
        assert 'pip install "django-mqlite[django-tasks]"' in done.stderr


@pytest.mark.skipif(django.VERSION >= (6, 0), reason="Django brings its own framework")
def test_django_tasks_is_taken_with_either_name_of_its_error():
    code = (
        "from django.conf import settings; settings.configure(); "
        "import django_tasks.exceptions as e; e.InvalidTask = e.InvalidTaskError; "
        "del e.InvalidTaskError; from django_mqlite.task_backend import backend, compat; "
        "assert compat.InvalidTask is backend.InvalidTask is e.InvalidTask"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr


BROKEN = {
    "missing module": {"BACKEND": "no.such.Backend"},
    "module that raises": {"BACKEND": "tests.integration.tasks.broken.Backend"},
    "no name": {},
    "not a class": {"BACKEND": "tests.integration.tasks.calls.seen"},
}


@pytest.mark.parametrize("entry", BROKEN.values(), ids=BROKEN)
def test_broken_other_entry_of_tasks_stops_nothing_of_ours(use, run_all, entry):
    use({"default": {"BACKEND": BACKEND, "QUEUES": ["mails"]}, "other": entry})

    imported_backends()
    call_command("migrate", verbosity=0, skip_checks=True)
    calls.note.using(queue_name="mails").enqueue()
    deliveries = drain()

    assert queues_of_kinds() == {"mails"}
    assert [delivery.state for delivery in deliveries] == ["completed"]


def test_broken_entry_of_tasks_is_left_to_framework(settings):
    settings.TASKS = {"default": {"BACKEND": "no.such.Backend"}}

    with pytest.raises(ImproperlyConfigured, match="Could not find backend"):
        task_backends["default"]


@pytest.mark.parametrize("run", [calls.note.enqueue_many, enqueue_async])
def test_many_calls_go_to_swapped_backend_one_by_one(use, run):
    task = calls.note
    use({"default": {"BACKEND": dummy()}})

    results = run([Draft(1), Draft(2, named=3)])

    assert [(result.args, result.kwargs) for result in results] == [([1], {}), ([2], {"named": 3})]
    assert [result.task for result in results] == [task, task]


# The app


@pytest.fixture
def not_installed(use, settings):
    backend = use()
    apps = [app for app in settings.INSTALLED_APPS if app != "django_mqlite"]
    settings.INSTALLED_APPS = apps
    return backend


def test_backend_of_app_that_is_not_installed_is_an_error(not_installed):
    (error,) = not_installed.check()

    assert error.id == "mqlite.E008"
    assert "not in INSTALLED_APPS" in error.msg


@pytest.mark.parametrize(
    "act",
    [
        calls.note.enqueue,
        lambda: calls.note.enqueue_many([Draft()]),
        lambda: calls.note.get_result("7"),
    ],
    ids=["enqueue", "enqueue_many", "get_result"],
)
def test_task_of_app_that_is_not_installed_says_what_to_do(not_installed, act):
    with pytest.raises(ImproperlyConfigured, match="Add 'django_mqlite' to INSTALLED_APPS"):
        act()


# Checks


def test_good_settings_have_nothing_to_be_said_about(use):
    use(QUEUES=["mails", "reports"], OPTIONS={"RESULT_TTL": timedelta(days=1)})

    assert found() == []


@pytest.mark.parametrize(
    ("ttl", "why"),
    [(-1, "must be not negative"), ("1d", "must be a timedelta or a number of seconds")],
)
def test_a_result_ttl_that_is_none_is_an_error_with_its_place(use, ttl, why):
    backend = use(OPTIONS={"RESULT_TTL": ttl})

    ((id, said),) = found()

    assert id == "mqlite.E005"
    assert said.startswith("TASKS['default']['OPTIONS']['RESULT_TTL']")
    assert why in said
    with pytest.raises(ImproperlyConfigured, match="RESULT_TTL"):
        assert backend.result_ttl_ms


def test_an_unknown_option_is_an_error_with_the_one_that_was_meant(use):
    backend = use(OPTIONS={"RESULTS_TTL": 1})

    (error,) = backend.check()

    assert (error.id, error.hint) == (
        "mqlite.E005",
        "Did you mean 'RESULT_TTL'? See django-mqlite's docs/checks.md#mqlitee005.",
    )


@pytest.mark.parametrize("name", ["my mails", "", "é", 7])
def test_a_name_that_no_queue_can_have_is_an_error(use, name):
    use(QUEUES=[name])

    ((id, said),) = found()

    assert (id, "Invalid queue name" in said) == ("mqlite.E006", True)


def test_a_window_that_outlives_the_results_is_a_warning(use, settings):
    use(OPTIONS={"RESULT_TTL": 60})
    settings.MQLITE = {"QUEUES": {"default": {"dedup_window": 61}}}

    ((id, said),) = found()

    assert (id, "'default'" in said) == ("mqlite.W012", True)
    settings.MQLITE = {"QUEUES": {"default": {"dedup_window": 60}}}
    assert found() == []


def test_a_handler_in_a_queue_that_only_tasks_declares_has_nothing_said_about_it(
    use, settings, monkeypatch
):
    use(QUEUES=["mails"])
    settings.MQLITE = {"QUEUES": {"jobs": {}}}
    monkeypatch.setattr(handlers, "_handlers", {})
    handlers.handler("mails")(print)
    handlers.handler("elsewhere")(print)

    said = [check.msg for check in run_checks(databases=["default"]) if check.id == "mqlite.W004"]

    (only,) = said
    assert "builtins.print handles queue 'elsewhere', which does not exist" in only


def test_unreadable_settings_are_the_other_checks_affair(use, settings):
    use(QUEUES=["mails"])
    settings.MQLITE = {"QEUES": {}}

    assert found() == []
    with pytest.raises(ImproperlyConfigured):
        get_settings()


class ReplicaRouter:
    """Reads are sent elsewhere."""

    def db_for_read(self, model, **hints):
        return "replica"

    def db_for_write(self, model, **hints):
        return "default"


def test_results_are_read_where_they_are_written(tasks_queue, settings, assert_enqueued):
    settings.DATABASE_ROUTERS = [ReplicaRouter()]
    result = calls.note.enqueue()

    assert calls.note.get_result(result.id) == result
    assert_enqueued(task=calls.note, count=1)
