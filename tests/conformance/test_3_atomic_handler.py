"""3.7 The changes of an atomic handler and its completion are one transaction."""

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
    """Run a message with a function that is registered with @handler(…, atomic=True)."""

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


def test_changes_and_completion_become_visible_together(clock, queue, run):
    result = run(work, enqueue_and_claim("jobs"))

    assert (result.error, result.settled) == (None, True)
    assert (committed_effects(), committed_messages()) == (1, [])


@pytest.mark.parametrize("error", [ValueError("x"), Reject("R"), SystemExit(1)], ids=repr)
def test_handler_that_raises_changes_nothing_and_keeps_its_lease(clock, queue, run, error):
    message = enqueue_and_claim("jobs")

    def fail(message):
        work(message)
        raise error

    result = run(fail, message)

    assert (result.error, result.settled) == (error, False)
    assert (committed_effects(), state_of(message)) == (0, "locked")
    assert Message.objects.settle(message, outcome_of(result.error), error=result.error)


def test_changes_of_a_handler_whose_lease_expired_are_rolled_back(clock, queue, run):
    message = enqueue_and_claim("jobs")

    def slow(message):
        work(message)
        clock.advance(30)

    result = run(slow, message)
    assert isinstance(result.error, LockLost)
    assert committed_effects() == 0

    reap()
    result = run(work, claim_one("jobs"))
    assert result.error is None
    assert (committed_effects(), committed_messages()) == (1, [])


def test_messages_of_a_handler_are_in_the_same_transaction(clock, queue, make_queue, run):
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
