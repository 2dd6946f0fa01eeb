"""The number of statements of each verb, so that no hot path gets another one unnoticed.

BEGIN and COMMIT are counted; statements of triggers are not.
"""

from contextlib import contextmanager
from types import SimpleNamespace

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from django_mqlite import Draft
from django_mqlite.models import DeadLetter, Message, Queue
from django_mqlite.types import Completion
from django_mqlite.verbs.settle import Settlement
from django_mqlite.worker.leases import LeaseRenewer

pytestmark = pytest.mark.django_db(transaction=True)

BODIES = [b"x"] * 64


@contextmanager
def counted(expected):
    """Fail with the list of statements if their number is not `expected`."""
    with CaptureQueriesContext(connection) as captured:
        yield
    statements = [" ".join(query["sql"].split())[:100] for query in captured.captured_queries]
    assert len(statements) == expected, "\n".join(statements)


@pytest.fixture(autouse=True)
def _known(queue):
    """Read the schema version, once for the process, and store messages to claim."""
    Message.objects.enqueue_many("jobs", BODIES * 3)
    assert Message.objects.claimable() == {"jobs"}


@pytest.mark.rule("13.10")
@pytest.mark.rule("17.7")
@pytest.mark.parametrize(
    ("verb", "expected"),
    [
        (lambda: Message.objects.enqueue("jobs", b"x"), 3),
        (lambda: Message.objects.enqueue_many("jobs", BODIES), 4),
        (lambda: Message.objects.claim("jobs"), 3),
        (lambda: Message.objects.claim("jobs", limit=64), 3),
        (Message.objects.claimable, 1),
    ],
    ids=["enqueue", "enqueue_many", "claim", "claim 64", "claimable"],
)
def test_verb_runs_few_statements(verb, expected):
    with counted(expected):
        verb()


@pytest.mark.rule("17.7")
@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, 3),
        # The limits, a claim within them, and the tokens of the rate.
        ({"max_in_flight": 100}, 5),
        ({"rate": "100/min"}, 6),
        ({"max_in_flight": 100, "rate": "100/min"}, 6),
    ],
    ids=["no limit", "max_in_flight", "rate", "both"],
)
def test_only_limits_cost_a_claim_more_statements(options, expected):
    Queue.objects.configure("jobs", **options)

    with counted(expected):
        assert len(Message.objects.claim("jobs", limit=8)) == 8


@pytest.mark.rule("17.7")
@pytest.mark.parametrize(
    ("options", "expected"), [({}, 1), ({"max_in_flight": 1}, 2), ({"rate": "1/s"}, 2)]
)
def test_only_limits_cost_an_idle_worker_a_second_read(options, expected):
    Queue.objects.configure("jobs", **options)

    with counted(expected):
        assert Message.objects.claimable() == {"jobs"}


@pytest.mark.rule("17.7")
def test_claim_of_nothing_reads_the_queue_once(make_queue):
    make_queue("empty")

    with counted(4):
        assert Message.objects.claim("empty") == []


def test_verb_in_the_callers_transaction_adds_a_savepoint_at_most():
    (claimed,) = Message.objects.claim("jobs")

    with counted(3), transaction.atomic():
        Message.objects.enqueue("jobs", b"x")
    with counted(6), transaction.atomic():
        claimed.complete()


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


@pytest.mark.parametrize("limit", [1, 64])
def test_completion_of_a_batch_runs_few_statements(limit):
    claimed = Message.objects.claim("jobs", limit=limit)

    with counted(4):
        assert all(Message.objects.complete_many(claimed))


def test_completion_in_a_retaining_queue_is_one_statement_more():
    Queue.objects.configure("jobs", retain_completed=60)
    (claimed,) = Message.objects.claim("jobs")

    with counted(5):
        claimed.complete()


@pytest.mark.parametrize(
    ("settle", "expected"),
    [
        (lambda message: message.abandon(delay=0), 4),
        (lambda message: message.abandon(), 5),  # reads the backoff of the queue
        (lambda message: message.reject("R"), 4),
        (lambda message: message.defer(), 4),
        (lambda message: message.renew(), 3),
        (lambda message: message.set_progress(0.5), 3),
    ],
    ids=["abandon with a delay", "abandon", "reject", "defer", "renew", "set progress"],
)
def test_settle_runs_few_statements(settle, expected):
    (claimed,) = Message.objects.claim("jobs")

    with counted(expected):
        settle(claimed)


@pytest.mark.parametrize("limit", [1, 8, 64])
def test_settle_and_claim_is_one_transaction_of_three_statements(limit):
    claimed = Message.objects.claim("jobs", limit=limit)
    settlements = [Settlement(message=message, outcome=Completion()) for message in claimed]

    with counted(5):
        held, messages = Message.objects.settle_and_claim(
            settlements, ["jobs"], limit=limit, worker="w"
        )

    assert (all(held), len(messages)) == (True, limit)


def test_discards_and_activations_are_one_statement_whatever_their_number():
    claimed = Message.objects.claim("jobs", limit=64)
    for message in claimed:
        message.defer()
    ids = [message.pk for message in claimed]

    with counted(3):
        assert Message.objects.activate_many(ids) == 64
    with counted(3):
        assert Message.objects.discard_many(ids) == 64


def test_check_for_ended_leases_is_one_read_after_a_commit_and_none_without():
    claimed = Message.objects.claim("jobs", limit=8)
    pool = SimpleNamespace(running=claimed, cancel=lambda *_: False)
    renewer = LeaseRenewer("default", pool)

    with counted(1):
        renewer.poll()
    with counted(0):
        renewer.poll()
