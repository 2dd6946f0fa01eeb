"""A delivery ends in drain() as in a worker, whatever the handler does to the database."""

from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial

import pytest
from django.contrib.auth.models import Group
from django.db import IntegrityError, connection, transaction
from django.test import TestCase
from django.utils import timezone, translation

from django_mqlite import enqueue, handler
from django_mqlite.models import DeadLetter, Message, Queue
from django_mqlite.task_backend.compat import task
from django_mqlite.testing import drain
from tests.support.steps import FLAVOURS, enqueue_flavour

from .conftest import DRAINS, WORKER

ran: list[str] = []
"""The callbacks that ran, in order."""


@task()
def parent_task():
    transaction.on_commit(partial(ran.append, "parent"))
    child_task.enqueue()


@task()
def child_task():
    with transaction.atomic():
        transaction.on_commit(partial(ran.append, "child"))


@pytest.fixture(autouse=True)
def no_callbacks():
    ran.clear()


@pytest.fixture(params=[WORKER, *DRAINS])
def run(request):
    return request.param


def make(name):
    Group.objects.create(name=name)


def make_twice(name):
    """Violate a unique constraint."""
    make(name)
    make(name)


def catch_duplicate():
    try:
        make_twice("a")
    except IntegrityError:
        make("b")


def catch_duplicate_around_savepoint():
    make("a")
    try:
        with transaction.atomic():
            make("a")
    except IntegrityError:
        make("b")


def roll_back():
    make("a")
    with transaction.atomic():
        make("b")
        transaction.on_commit(partial(ran.append, "rolled back"))
        transaction.set_rollback(True)


def fail_in_transaction():
    make("a")
    with transaction.atomic():
        make_twice("b")


def fail_in_callback():
    with transaction.atomic():
        make("a")
        transaction.on_commit(partial(ran.append, "before"))
        transaction.on_commit(partial(make, "a"))


def fail_in_robust_callback():
    with transaction.atomic():
        make("a")
        transaction.on_commit(lambda: make("a"), robust=True)
        transaction.on_commit(lambda: make("b"))


def catch_duplicate_in_callback():
    with transaction.atomic():
        make("a")
        transaction.on_commit(catch_duplicate_around_savepoint_of_b)


def catch_duplicate_around_savepoint_of_b():
    try:
        make_twice("b")
    except IntegrityError:
        make("c")


def be_durable():
    with transaction.atomic(durable=True):
        make("a")


def leave_atomic_open():
    make("a")
    transaction.atomic().__enter__()
    make("b")


def leave_autocommit_off():
    transaction.set_autocommit(False)
    make("a")


def commit_by_hand():
    transaction.set_autocommit(False)
    make("a")
    transaction.commit()
    make("b")
    transaction.rollback()
    make("c")
    transaction.set_autocommit(True)


def close_connection():
    make("a")
    if connection.get_autocommit():
        connection.close()
    make("b")


def callback_outside_transaction():
    transaction.on_commit(partial(make, "a"))
    assert Group.objects.filter(name="a").exists()


@dataclass(frozen=True, kw_only=True)
class Result:
    """The recorded error, the names that were written, and the callbacks that ran."""

    error: str | None = None
    names: str = ""
    ran: tuple[str, ...] = ()


LEFT_OPEN = "django_mqlite.exceptions.TransactionLeftOpen"
DUPLICATE = "django.db.utils.IntegrityError"
BROKEN = "django.db.transaction.TransactionManagementError"

CASES = {
    catch_duplicate: (Result(names="ab"), Result(error=BROKEN)),
    catch_duplicate_around_savepoint: (Result(names="ab"), Result(names="ab")),
    roll_back: (Result(names="a"), Result(names="a")),
    fail_in_transaction: (Result(error=DUPLICATE, names="a"), Result(error=DUPLICATE)),
    fail_in_callback: (
        Result(error=DUPLICATE, names="a", ran=("before",)),
        Result(names="a", ran=("before",)),
    ),
    fail_in_robust_callback: (Result(names="ab"), Result(names="ab")),
    catch_duplicate_in_callback: (Result(names="abc"), Result(names="abc")),
    be_durable: (Result(names="a"), Result(error="builtins.RuntimeError")),
    callback_outside_transaction: (Result(names="a"), Result(error="builtins.AssertionError")),
    close_connection: (Result(names="ab"), Result(names="ab")),
    commit_by_hand: (Result(names="ac"), Result(error=BROKEN)),
    leave_autocommit_off: (Result(error=LEFT_OPEN), Result(error=BROKEN)),
    leave_atomic_open: (Result(error=LEFT_OPEN, names="a"), Result(error=LEFT_OPEN)),
}
"""By what the handler does: the result, and the result if the handler is atomic."""


def result():
    letters = list(DeadLetter.objects.all())
    assert Message.objects.exclude(state="completed").count() == len(letters)
    return Result(
        error=letters[0].errors[-1]["class"] if letters else None,
        names="".join(Group.objects.order_by("name").values_list("name", flat=True)),
        ran=tuple(ran),
    )


@pytest.mark.parametrize("flavour", FLAVOURS)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_delivery_ends_as_in_worker(run, make_queue, monkeypatch, case, flavour):
    expected = CASES[case][flavour == "atomic"]
    monkeypatch.setattr("tests.support.steps.steps", case)
    make_queue("default", max_delivery_count=1)
    enqueue_flavour(flavour)

    run()

    assert not connection.needs_rollback
    assert result() == expected


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT name FROM auth_group",
        "INSERT INTO auth_group (name) VALUES ('x'), ('y'), ('z') RETURNING name",
    ],
    ids=["read", "write"],
)
@pytest.mark.parametrize("flavour", FLAVOURS)
def test_half_read_query_ends_with_its_delivery(run, make_queue, monkeypatch, sql, flavour):
    kept = []

    def keep_half_read_query():
        if kept:
            make("later")
        else:
            Group.objects.bulk_create([Group(name="a"), Group(name="b")])
            cursor = connection.cursor()
            cursor.execute(sql)
            cursor.fetchone()
            kept.append(cursor)

    monkeypatch.setattr("tests.support.steps.steps", keep_half_read_query)
    make_queue("default", max_delivery_count=1)
    enqueue_flavour(flavour)
    enqueue_flavour(flavour)

    run()
    kept.clear()

    assert Group.objects.filter(name="later").exists()
    assert DeadLetter.objects.count() <= (flavour == "atomic")  # its own commit is prevented


variable = ContextVar("variable", default="of the test")


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_delivery_keeps_its_locale_and_context_to_itself(run, make_queue, monkeypatch, flavour):
    seen = []

    def see():
        zone = timezone.get_current_timezone_name()
        seen.append((translation.get_language(), zone, variable.get()))

    def change_all():
        see()
        translation.activate("de")
        timezone.activate("Asia/Tokyo")
        variable.set("of the delivery")

    monkeypatch.setattr("tests.support.steps.steps", change_all)
    make_queue("default")
    enqueue_flavour(flavour)
    enqueue_flavour(flavour)

    with translation.override("fr"), timezone.override("Europe/Paris"):
        run()
        see()

    assert seen == [("fr", "Europe/Paris", "of the test")] * 3


def test_failed_delivery_does_not_disturb_next_one(run, make_queue):
    make_queue("default", max_delivery_count=1)
    handler("default")(lambda message: make(message.data))
    for name in ("a", "a", "b"):
        enqueue("default", name)

    run()

    assert result() == Result(error=DUPLICATE, names="ab")


def test_settle_that_was_rolled_back_is_settled_again(run, make_queue):
    make_queue("default", max_delivery_count=1)

    @handler("default")
    def complete_and_roll_back(message):
        with transaction.atomic():
            message.complete()
            transaction.set_rollback(True)
        raise ValueError("after the completion")

    enqueue("default", None)

    run()

    assert result() == Result(error="builtins.ValueError")


class CallbacksOfTasks(TestCase):
    """Callbacks run once, even if the test runs those of its own transaction."""

    def test_callbacks_that_ran_are_not_run_again(self):
        Queue.objects.create_queue("default")
        ran.clear()

        with self.captureOnCommitCallbacks(execute=True):
            parent_task.enqueue()
            drain("default")
            transaction.on_commit(partial(ran.append, "test"))

        assert ran == ["parent", "child", "test"]
