"""TASKS: its queues are created, served and checked."""

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
    """Set TASKS to one backend with these entries, or to the given value."""

    def use(tasks=None, **entries):
        settings.TASKS = tasks or {"default": {"BACKEND": BACKEND, **entries}}
        return task_backends["default"]

    return use


def checks(ids=("mqlite.E005", "mqlite.E006", "mqlite.W012")):
    return [(check.id, check.msg) for check in run_checks() if check.id in ids]


# Queues


def test_migrate_creates_the_queues_of_tasks(use):
    use(QUEUES=["mails", "reports"])

    call_command("migrate", verbosity=0)

    assert set(Queue.objects.values_list("name", flat=True)) >= {"mails", "reports"}


def test_queues_default_to_the_frameworks(use):
    use()

    Queue.objects.sync()

    assert Queue.objects.get().name == "default"
    assert calls.note.enqueue().status == "READY"


@pytest.mark.parametrize("declared", [True, False])
def test_sync_keeps_declared_and_stored_options(use, settings, make_queue, declared):
    use(QUEUES=["mails"])
    options = {"lock_duration": 99}
    if declared:
        settings.MQLITE = {"QUEUES": {"mails": options}}
    else:
        make_queue("mails", **options)

    assert Queue.objects.sync() == (["mails"] if declared else [])

    assert Queue.objects.get().lock_duration == timedelta(seconds=99)


def test_worker_serves_the_queues_of_tasks_by_default(use, make_queue):
    for name in ("jobs", "mails", "others"):
        make_queue(name)
    use(QUEUES=["mails"])
    handlers = {"jobs": Handler(queue="jobs", function=print)}

    assert served_queues("default", handlers, (), ()) == ("jobs", "mails")
    assert served_queues("default", handlers, ["mails"], ()) == ("mails",)
    assert served_queues("default", handlers, (), ["mails"]) == ("jobs",)
    with pytest.raises(NotReady, match=r"'others' has no handler.*QUEUES of a tasks backend"):
        served_queues("default", handlers, ["others"], ())


def test_queues_of_every_entry_with_this_backend_are_served(use, settings):
    settings.MQLITE = {"QUEUES": {"mails": {}, "reports": {}}}
    entries = {"default": (BACKEND, ["a"]), "other": (BACKEND, ["b"]), "dummy": (dummy(), ["c"])}

    use({alias: {"BACKEND": path, "QUEUES": queues} for alias, (path, queues) in entries.items()})
    assert queues_of_kinds() == {"a", "b"}

    use(QUEUES=[])
    assert queues_of_kinds() == {"mails", "reports"}


def test_entries_that_share_a_queue_have_their_own_options(use, make_queue, run_all, message_of):
    make_queue("default")
    brief = {"BACKEND": BACKEND, "OPTIONS": {"RESULT_TTL": 60}}
    use({"default": {"BACKEND": BACKEND}, "brief": brief})
    aliases = {"default": timedelta(days=7), "brief": timedelta(minutes=1)}
    results = {alias: calls.note.using(backend=alias).enqueue() for alias in aliases}
    run_all()

    for alias, result in results.items():
        result.refresh()
        assert (result.backend, result.task.backend) == (alias, alias)
        message = message_of(result)
        assert message.kept_until - message.finished_at == aliases[alias]


# Loading


enqueue_many_async = async_to_sync(calls.note.aenqueue_many)


def dummy():
    package = task_backends.__class__.__module__.partition(".tasks")[0]
    return f"{package}.{'tasks.' if package == 'django' else ''}backends.dummy.DummyBackend"


def run_python(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


def test_backend_is_loaded_when_the_app_is_ready():
    process = run_python(
        "import django; django.setup(); from django_mqlite.handlers import _kinds; print(*_kinds)"
    )

    assert process.stdout.strip() == "application/vnd.django-mqlite.task+json", process.stderr


def test_missing_framework_names_the_package_to_install():
    """Django 6.0 and later include the framework and need no package."""
    process = run_python(
        "import sys; sys.modules['django_tasks'] = None; "
        "from django.conf import settings; settings.configure(); "
        "import django_mqlite.task_backend"
    )

    if django.VERSION >= (6, 0):
        assert process.returncode == 0, process.stderr
    else:
        assert "ImproperlyConfigured: Tasks need Django 6.0 or later, or" in process.stderr
        assert 'pip install "django-mqlite[django-tasks]"' in process.stderr


@pytest.mark.skipif(django.VERSION >= (6, 0), reason="Django includes the framework")
def test_django_tasks_may_use_either_name_of_its_error():
    process = run_python(
        "from django.conf import settings; settings.configure(); "
        "import django_tasks.exceptions as e; e.InvalidTask = e.InvalidTaskError; "
        "del e.InvalidTaskError; from django_mqlite.task_backend import backend, compat; "
        "assert compat.InvalidTask is backend.InvalidTask is e.InvalidTask"
    )

    assert process.returncode == 0, process.stderr


BROKEN = {
    "missing module": {"BACKEND": "no.such.Backend"},
    "module that raises": {"BACKEND": "tests.integration.tasks.broken.Backend"},
    "no name": {},
    "not a class": {"BACKEND": "tests.integration.tasks.calls.seen"},
}


def test_missing_backend_raises_the_frameworks_error(use):
    with pytest.raises(ImproperlyConfigured, match="Could not find backend"):
        use({"default": BROKEN["missing module"]})


@pytest.mark.parametrize("entry", BROKEN.values(), ids=BROKEN)
def test_broken_entry_of_tasks_does_not_affect_other_entries(use, run_all, entry):
    use({"default": {"BACKEND": BACKEND, "QUEUES": ["mails"]}, "other": entry})

    imported_backends()
    call_command("migrate", verbosity=0, skip_checks=True)
    calls.note.using(queue_name="mails").enqueue()
    deliveries = drain()

    assert queues_of_kinds() == {"mails"}
    assert [delivery.state for delivery in deliveries] == ["completed"]


@pytest.mark.parametrize(
    "enqueue_many", [calls.note.enqueue_many, enqueue_many_async], ids=["sync", "async"]
)
def test_enqueue_many_calls_another_backend_for_each_draft(use, enqueue_many):
    task = calls.note
    use({"default": {"BACKEND": dummy()}})

    results = enqueue_many([Draft(1), Draft(2, named=3)])

    assert [(result.args, result.kwargs) for result in results] == [([1], {}), ([2], {"named": 3})]
    assert [result.task for result in results] == [task, task]


# The app


@pytest.fixture
def not_installed(use, settings):
    backend = use()
    apps = [app for app in settings.INSTALLED_APPS if app != "django_mqlite"]
    settings.INSTALLED_APPS = apps
    return backend


def test_backend_without_the_installed_app_is_an_error(not_installed):
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
def test_task_without_the_installed_app_raises_with_the_fix(not_installed, act):
    with pytest.raises(ImproperlyConfigured, match="Add 'django_mqlite' to INSTALLED_APPS"):
        act()


# Checks


@pytest.mark.parametrize(
    ("ttl", "reason"),
    [(-1, "must be not negative"), ("1d", "must be a timedelta or a number of seconds")],
)
def test_invalid_result_ttl_is_an_error_with_its_place(use, ttl, reason):
    backend = use(OPTIONS={"RESULT_TTL": ttl})

    ((id, message),) = checks()

    assert id == "mqlite.E005"
    assert message.startswith("TASKS['default']['OPTIONS']['RESULT_TTL']")
    assert reason in message
    with pytest.raises(ImproperlyConfigured, match="RESULT_TTL"):
        assert backend.result_ttl_ms


def test_unknown_option_is_an_error_with_a_suggestion(use):
    backend = use(OPTIONS={"RESULTS_TTL": 1})

    (error,) = backend.check()

    assert (error.id, error.hint) == (
        "mqlite.E005",
        "Did you mean 'RESULT_TTL'? See django-mqlite's docs/checks.md#mqlitee005.",
    )


@pytest.mark.parametrize("name", ["my mails", "", "é", 7])
def test_invalid_queue_name_is_an_error(use, name):
    use(QUEUES=[name])

    ((id, message),) = checks()

    assert (id, "Invalid queue name" in message) == ("mqlite.E006", True)


def test_dedup_window_longer_than_results_are_kept_is_a_warning(use, settings):
    use(OPTIONS={"RESULT_TTL": 60})
    settings.MQLITE = {"QUEUES": {"default": {"dedup_window": 61}}}

    ((id, message),) = checks()

    assert (id, "'default'" in message) == ("mqlite.W012", True)
    settings.MQLITE = {"QUEUES": {"default": {"dedup_window": 60}}}
    assert checks() == []


def test_handler_of_a_queue_that_only_tasks_declares_is_valid(use, settings, monkeypatch):
    use(QUEUES=["mails"])
    settings.MQLITE = {"QUEUES": {"jobs": {}}}
    monkeypatch.setattr(handlers, "_handlers", {})
    handlers.handler("mails")(print)
    handlers.handler("elsewhere")(print)

    (message,) = [
        check.msg for check in run_checks(databases=["default"]) if check.id == "mqlite.W004"
    ]

    assert "builtins.print handles queue 'elsewhere', which does not exist" in message


def test_invalid_mqlite_settings_are_left_to_their_own_check(use, settings):
    use(QUEUES=["mails"])
    settings.MQLITE = {"QEUES": {}}

    assert checks() == []
    with pytest.raises(ImproperlyConfigured):
        get_settings()


class ReplicaRouter:
    """Send reads to another database."""

    def db_for_read(self, model, **hints):
        return "replica"

    def db_for_write(self, model, **hints):
        return "default"


def test_results_are_read_where_messages_are_written(tasks_queue, settings, assert_enqueued):
    settings.DATABASE_ROUTERS = [ReplicaRouter()]
    result = calls.note.enqueue()

    assert calls.note.get_result(result.id) == result
    assert_enqueued(task=calls.note, count=1)
