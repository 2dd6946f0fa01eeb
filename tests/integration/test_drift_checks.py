"""System checks that compare the settings and the code with the database."""

import pytest
from django.core.checks import run_checks
from django.core.management import call_command
from django.db import connection

from django_mqlite import handlers, recurring
from django_mqlite.exceptions import NameConflict
from django_mqlite.handlers import MessageKind, queues_of_kinds
from django_mqlite.models import Message, Queue, Subscription
from django_mqlite.types import WorkerRecord
from django_mqlite.verbs.workers import register
from django_mqlite.worker.dispatcher import Dispatcher
from tests.support.verbs import dead_letter

pytestmark = pytest.mark.django_db

DRIFT = ("mqlite.E012", "mqlite.E013", "mqlite.W016", "mqlite.W017")


@pytest.fixture(autouse=True)
def _no_tasks(settings, monkeypatch):
    monkeypatch.setattr(handlers, "_kinds", {})
    monkeypatch.setattr(handlers, "_handlers", {})
    monkeypatch.setattr(recurring, "_declared", {})


@pytest.fixture
def declare(settings):
    def declare(**queues):
        settings.MQLITE = {"QUEUES": queues}

    return declare


def found():
    messages = run_checks(tags=["mqlite"], databases=["default"])
    return [(message.id, message.msg, message.hint) for message in messages if message.id in DRIFT]


def migrate():
    """Apply the settings as the last step of migrate does."""
    return Queue.objects.sync()


def test_settings_that_migrate_has_applied_are_no_drift(declare, queue):
    declare(
        emails={"lock_duration": 60, "rate": "10/s", "max_in_flight": 3, "dlq_max_age": None},
        jobs={},
        plain={"dlq_max_count": "inherit", "dead_letter_on_expire": False},
    )
    migrate()

    assert found() == []


def test_option_that_differs_is_reported_with_both_values(declare, make_queue):
    make_queue("emails", lock_duration=30, dlq_max_age=None, rate="10/s", ordering_mode="standard")
    declare(
        emails={
            "lock_duration": 90.5,
            "dead_letter_on_expire": False,
            "dlq_max_count": 7,
            "max_in_flight": 3,
            "ordering_mode": "strict_fifo",
        }
    )

    ((id, text, hint),) = found()

    assert id == "mqlite.W016"
    assert "Queue 'emails' in database 'default' differs from MQLITE['QUEUES']: " in text
    assert text.partition("]: ")[2] == (
        "ordering_mode is standard instead of strict_fifo, lock_duration is 30 s instead of 90.5 "
        "s, dead_letter_on_expire is True instead of False, dlq_max_age is None instead of "
        "'inherit', dlq_max_count is 'inherit' instead of 7, max_in_flight is None instead of 3, "
        "rate is 10/s instead of None."
    )
    assert "`manage.py migrate` applies the settings" in hint
    migrate()
    assert found() == []


def test_declared_queue_that_is_missing_is_reported(declare, queue):
    declare(emails={})

    ((id, text, hint),) = found()

    assert (id, text) == (
        "mqlite.W016",
        "Queue 'emails' is in MQLITE['QUEUES'], and not in database 'default'.",
    )
    assert hint.startswith("`manage.py migrate` creates it.")


def test_queue_of_tasks_that_is_missing_is_reported(declare, queue, monkeypatch):
    kind = MessageKind(
        content_type="x", handler_of=None, queues=lambda: {"tasks"}, discover=list,
        prepare_call=None,
    )  # fmt: skip
    monkeypatch.setattr(handlers, "_kinds", {"x": kind})

    assert [text for _, text, _ in found()] == [
        "Queue 'tasks' is in TASKS, and not in database 'default'."
    ]
    Subscription.objects.subscribe("prices", "tasks")
    assert queues_of_kinds() == {"tasks"}
    assert found() == []  # tasks may use the queue of a subscription


def test_declared_queue_that_belongs_to_a_subscription_is_an_error(declare, queue):
    Subscription.objects.subscribe("prices", "stock")
    declare(stock={"lock_duration": 60}, prices={})

    (topic, stock) = found()

    assert (topic[0], stock[0]) == ("mqlite.E012", "mqlite.E012")
    assert "Queue 'prices'" in topic[1]
    assert "a topic has this name: `migrate` fails" in topic[1]
    assert "Queue 'stock'" in stock[1]
    assert "call Queue.objects.configure('stock', …)" in stock[2]
    with pytest.raises(NameConflict):
        migrate()
    # The way out:
    declare()
    Queue.objects.configure("stock", lock_duration=60)
    assert found() == []


@pytest.mark.parametrize(
    ("before", "after"), [("standard", "strict_fifo"), ("strict_fifo", "group_fifo")]
)
def test_order_of_a_queue_with_messages_is_an_error(declare, make_queue, before, after):
    make_queue("emails", ordering_mode=before)
    Message.objects.enqueue("emails", 1)
    dead_letter("emails")
    declare(emails={"ordering_mode": after})

    ((id, text, hint),) = found()

    assert id == "mqlite.E013"
    assert f"Queue 'emails' is {before} and has messages" in text
    assert f"MQLITE['QUEUES'] declares {after}: `migrate` fails" in text
    # The ways out:
    assert f"Declare {before} until the queue is empty" in hint
    call_command("mqlite", "empty", "emails", "--yes")
    assert [id for id, _, _ in found()] == ["mqlite.W016"]
    migrate()
    assert found() == []


def test_database_without_tables_has_no_drift(declare, queue, monkeypatch):
    declare(emails={})
    monkeypatch.setattr(connection.introspection, "table_names", list)

    assert found() == []


# Schedules


def start_reaper():
    record = WorkerRecord(
        worker="reaper", host="host", boot_id="boot", pid_namespace=1, pid=1,
        process_started_at=0.0, queues=(), slots=0, in_flight=0, started_at=0,
    )  # fmt: skip
    register("default", record)


def set_schedules(settings, **schedules):
    settings.MQLITE = {
        "SCHEDULES": {name: {"every": s, "queue": "jobs"} for name, s in schedules.items()}
    }


def test_schedules_of_running_workers_that_differ_are_reported(settings, queue, clock):
    set_schedules(settings, kept=60, changed=60, removed=60)
    Dispatcher.of_project("default").poll()
    start_reaper()
    assert found() == []

    set_schedules(settings, kept=60, changed=90, new=60)

    ((id, text, hint),) = found()
    assert id == "mqlite.W017"
    assert text.endswith(
        "'changed' is every 60 s instead of every 90 s, 'new' is new, 'removed' was removed."
    )
    assert hint.startswith("Restart the workers")
    clock.advance(3_600)  # the worker is gone
    assert found() == []


def test_schedules_without_a_worker_are_no_drift(settings, queue):
    set_schedules(settings, new=60)

    assert found() == []
