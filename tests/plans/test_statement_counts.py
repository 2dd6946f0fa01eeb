"""How many statements each verb runs, so that a hot path cannot quietly grow one.

Counted by Django, beginnings and commits included; what triggers do is not counted.
"""

from contextlib import contextmanager

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from django_mqlite import Draft
from django_mqlite.models import DeadLetter, Message, Queue
from django_mqlite.types import Completion
from django_mqlite.verbs.settle import Settlement

pytestmark = pytest.mark.django_db(transaction=True)

BODIES = [b"x"] * 64


@contextmanager
def counted(expected):
    """Fails with the statements that were run if they are not so many."""
    with CaptureQueriesContext(connection) as captured:
        yield
    run = [" ".join(query["sql"].split())[:100] for query in captured.captured_queries]
    assert len(run) == expected, "\n".join(run)


@pytest.fixture(autouse=True)
def _known(queue):
    """The schema has been asked for, once for the process, and there are messages to claim."""
    Message.objects.enqueue_many("jobs", BODIES * 3)
    assert Message.objects.claimable() == {"jobs"}


def test_enqueue_is_one_statement_in_a_transaction_of_its_own():
    with counted(3):
        Message.objects.enqueue("jobs", b"x")


def test_enqueue_in_the_callers_transaction_is_one_statement_more():
    with counted(3), transaction.atomic():
        Message.objects.enqueue("jobs", b"x")


@pytest.mark.rule("13.10")
def test_enqueue_with_a_free_unique_key_is_one_statement():
    with counted(3):
        Message.objects.enqueue("jobs", b"x", unique_key="a")


@pytest.mark.rule("13.10")
def test_enqueue_with_a_taken_unique_key_reads_its_holder():
    Message.objects.enqueue("jobs", b"x", unique_key="a")

    with counted(8):
        Message.objects.enqueue("jobs", b"x", unique_key="a")


@pytest.mark.rule("13.10")
def test_enqueue_many_with_unique_keys_reads_their_holders_once():
    drafts = [Draft(b"x", unique_key=str(number)) for number in range(64)]

    with counted(5):
        Message.objects.enqueue_many("jobs", drafts)


@pytest.mark.rule("13.10")
def test_redrive_is_one_statement():
    (claimed,) = Message.objects.claim("jobs")
    claimed.reject("Broken")

    with counted(3):
        DeadLetter.objects.redrive([claimed.pk])


def test_enqueue_many_is_one_statement_and_a_look_at_the_queue_whatever_their_number():
    with counted(4):
        Message.objects.enqueue_many("jobs", BODIES)


@pytest.mark.parametrize("limit", [1, 64])
def test_a_claim_is_one_statement_whatever_its_size(limit):
    with counted(3):
        claimed = Message.objects.claim("jobs", limit=limit)

    assert len(claimed) == limit


@pytest.mark.parametrize("limit", [1, 64])
def test_completing_is_one_statement_and_its_receipts_whatever_their_number(limit):
    claimed = Message.objects.claim("jobs", limit=limit)

    with counted(4):
        assert all(Message.objects.complete_many(claimed))


def test_completing_in_the_callers_transaction_adds_a_savepoint():
    (claimed,) = Message.objects.claim("jobs")

    with counted(6), transaction.atomic():
        claimed.complete()


def test_completing_what_its_queue_keeps_is_one_statement_more():
    Queue.objects.configure("jobs", retain_completed=60)
    (claimed,) = Message.objects.claim("jobs")

    with counted(5):
        claimed.complete()


@pytest.mark.parametrize(
    ("settle", "expected"),
    [
        (lambda message: message.abandon(delay=0), 4),
        (lambda message: message.abandon(), 5),  # its backoff is asked for
        (lambda message: message.reject("R"), 4),
        (lambda message: message.defer(), 4),
        (lambda message: message.renew(), 3),
    ],
    ids=["abandon with a delay", "abandon", "reject", "defer", "renew"],
)
def test_the_other_ways_to_settle(settle, expected):
    (claimed,) = Message.objects.claim("jobs")

    with counted(expected):
        settle(claimed)


@pytest.mark.parametrize("limit", [1, 8, 64])
def test_what_a_worker_settles_and_claims_at_once_is_one_transaction_of_three(limit):
    claimed = Message.objects.claim("jobs", limit=limit)
    settlements = [Settlement(message=message, outcome=Completion()) for message in claimed]

    with counted(5):
        held, messages = Message.objects.settle_and_claim(
            settlements, ["jobs"], limit=limit, worker="w"
        )

    assert (all(held), len(messages)) == (True, limit)


def test_a_look_for_something_to_do_is_a_read():
    with counted(1):
        Message.objects.claimable()
