"""A delivery ends in drain() as it ends in a worker, whatever the handler does to the database."""

from dataclasses import dataclass
from functools import partial

import pytest
from django.contrib.auth.models import Group
from django.db import IntegrityError, connection, transaction
from django.test import TestCase

from django_mqlite import enqueue, handler, handlers
from django_mqlite.models import DeadLetter, Message, Queue
from django_mqlite.task_backend.compat import task
from django_mqlite.testing import drain
from tests.support.steps import FLAVOURS, enqueue_flavour, work

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


COMMITTED = pytest.mark.django_db(transaction=True)

drain_default = partial(drain, "default")

WORKER = pytest.param(work, id="worker", marks=COMMITTED)
DRAINS = [
    pytest.param(drain_default, id="drain", marks=COMMITTED),
    pytest.param(drain_default, id="drain in TestCase", marks=pytest.mark.django_db),
]


@pytest.fixture(autouse=True)
def nothing_registered(monkeypatch):
    monkeypatch.setattr(handlers, "_handlers", {})
    ran.clear()


@pytest.fixture(params=[WORKER, *DRAINS])
def run(request):
    return request.param


def make(name):
    Group.objects.create(name=name)


def make_twice(name):
    """Fail as a unique column does."""
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
class Ends:
    """The error that the delivery is recorded with, the names written, the callbacks that ran."""

    error: str | None = None
    names: str = ""
    ran: tuple[str, ...] = ()


LEFT_OPEN = "django_mqlite.exceptions.TransactionLeftOpen"
DUPLICATE = "django.db.utils.IntegrityError"
BROKEN = "django.db.transaction.TransactionManagementError"

CASES = {
    catch_duplicate: (Ends(names="ab"), Ends(error=BROKEN)),
    catch_duplicate_around_savepoint: (Ends(names="ab"), Ends(names="ab")),
    roll_back: (Ends(names="a"), Ends(names="a")),
    fail_in_transaction: (Ends(error=DUPLICATE, names="a"), Ends(error=DUPLICATE)),
    fail_in_callback: (
        Ends(error=DUPLICATE, names="a", ran=("before",)),
        Ends(names="a", ran=("before",)),
    ),
    fail_in_robust_callback: (Ends(names="ab"), Ends(names="ab")),
    catch_duplicate_in_callback: (Ends(names="abc"), Ends(names="abc")),
    be_durable: (Ends(names="a"), Ends(error="builtins.RuntimeError")),
    callback_outside_transaction: (Ends(names="a"), Ends(error="builtins.AssertionError")),
    close_connection: (Ends(names="ab"), Ends(names="ab")),
    commit_by_hand: (Ends(names="ac"), Ends(error=BROKEN)),
    leave_autocommit_off: (Ends(error=LEFT_OPEN), Ends(error=BROKEN)),
    leave_atomic_open: (Ends(error=LEFT_OPEN, names="a"), Ends(error=LEFT_OPEN)),
}
"""By what the handler does: how it ends, and how if the handler is atomic."""


def ended():
    letters = list(DeadLetter.objects.all())
    assert Message.objects.exclude(state="completed").count() == len(letters)
    return Ends(
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
    assert ended() == expected


def test_failed_delivery_does_not_disturb_next_one(run, make_queue):
    make_queue("default", max_delivery_count=1)
    handler("default")(lambda message: make(message.data))
    for name in ("a", "a", "b"):
        enqueue("default", name)

    run()

    assert ended() == Ends(error=DUPLICATE, names="ab")


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

    assert ended() == Ends(error="builtins.ValueError")


class CallbacksOfTasks(TestCase):
    """Callbacks run once, also where the test runs those of its own transaction."""

    def test_callbacks_that_ran_are_not_run_again(self):
        Queue.objects.create_queue("default")
        ran.clear()

        with self.captureOnCommitCallbacks(execute=True):
            parent_task.enqueue()
            drain("default")
            transaction.on_commit(partial(ran.append, "test"))

        assert ran == ["parent", "child", "test"]
