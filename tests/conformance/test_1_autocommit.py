"""1.1 With autocommit off, the caller commits or rolls back the changes of a verb."""

import pytest
from django.db import transaction

from django_mqlite import Draft, enqueue, enqueue_many
from django_mqlite.models import DeadLetter, Message, Queue
from tests.support.verbs import dead_letter

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.rule("1.1")]

VERBS = {
    "enqueue": lambda dead: enqueue("jobs", None),
    "enqueue in a group": lambda dead: enqueue("jobs", None, group_id="g"),
    "enqueue_many": lambda dead: enqueue_many("jobs", [1, Draft(2)]),
    "redrive": lambda dead: DeadLetter.objects.redrive([dead.pk]),
    "purge": lambda dead: DeadLetter.objects.purge([dead.pk]),
    "pause": lambda dead: Queue.objects.get(name="jobs").pause(),
}


@pytest.fixture
def manual(db):
    transaction.set_autocommit(False)
    yield
    transaction.rollback()
    transaction.set_autocommit(True)


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("commit", [True, False])
def test_verb_joins_a_transaction_that_the_caller_began_by_hand(
    clock, queue, request, verb, commit
):
    dead = dead_letter("jobs")
    before = list(Message.objects.values()), list(Queue.objects.values())
    request.getfixturevalue("manual")

    VERBS[verb](dead)
    transaction.commit() if commit else transaction.rollback()

    after = list(Message.objects.values()), list(Queue.objects.values())
    assert (after != before) == commit
