"""3.7 A handler's effects and its completion are one transaction."""

import pytest
from django.contrib.auth.models import Group

from django_mqlite import LockLost, Reject, enqueue, handler, handlers
from django_mqlite.models import Message
from django_mqlite.outcomes import outcome_of
from django_mqlite.worker.executor import Executor
from tests.support.transactions import another_connection, committed_messages
from tests.support.verbs import claim_one, enqueue_and_claim, reap, state_of

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.rule("3.7")]


@pytest.fixture
def run(monkeypatch):
    """Runs a message through a function that is registered with @handler(…, atomic=True)."""

    def run(function, message):
        monkeypatch.setattr(handlers, "_handlers", {})
        handler("jobs", atomic=True)(function)
        executor = Executor(handlers=dict(handlers._handlers), using="default")
        return executor.run(message)

    return run


def committed_effects():
    with another_connection() as other:
        return other.execute("SELECT count(*) FROM auth_group").fetchone()[0]


def work(message):
    Group.objects.create(name=f"effect of {message.pk}")
    assert (committed_effects(), committed_messages()) == (0, [message.pk])


def test_effects_and_completion_become_visible_together(clock, queue, run):
    finished = run(work, enqueue_and_claim("jobs"))

    assert (finished.error, finished.settled) == (None, True)
    assert (committed_effects(), committed_messages()) == (1, [])


@pytest.mark.parametrize("error", [ValueError("x"), Reject("R"), SystemExit(1)], ids=repr)
def test_a_handler_that_raises_has_done_nothing_and_its_lease_still_holds(clock, queue, run, error):
    message = enqueue_and_claim("jobs")

    def fail(message):
        work(message)
        raise error

    finished = run(fail, message)

    assert (finished.error, finished.settled) == (error, False)
    assert (committed_effects(), state_of(message)) == (0, "locked")
    assert Message.objects.settle(message, outcome_of(finished.error), error=finished.error)


def test_a_completed_message_cannot_come_back_and_its_effects_cannot_double(clock, queue, run):
    """The lease runs out while the handler works: its effects go, those of the second run stay."""
    message = enqueue_and_claim("jobs")

    def slow(message):
        work(message)
        clock.advance(30)

    finished = run(slow, message)
    assert isinstance(finished.error, LockLost)
    assert committed_effects() == 0

    reap()
    finished = run(work, claim_one("jobs"))
    assert finished.error is None
    assert (committed_effects(), committed_messages()) == (1, [])


def test_what_the_handler_enqueues_is_of_the_same_transaction(clock, queue, make_queue, run):
    make_queue("next")

    def fail(message):
        enqueue("next", None)
        raise ValueError

    def succeed(message):
        enqueue("next", None)

    run(fail, enqueue_and_claim("jobs"))
    assert Message.objects.filter(queue="next").count() == 0

    clock.advance(30)
    reap()
    run(succeed, claim_one("jobs"))
    assert [m.queue for m in Message.objects.all()] == ["next"]
