"""2.1 to 2.4 and 2.7 Claim."""

from datetime import timedelta

import pytest
from django.db import connection, transaction

from django_mqlite import TransactionRefused, enqueue
from django_mqlite.models import Message
from django_mqlite.types import Lease
from tests.support.verbs import activate, claim_ids, claim_one, enqueue_and_claim, reap

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.rule("2.1")
def test_claim_takes_eligible_messages_by_priority_then_id(clock, queue):
    later = enqueue("jobs", "later", delay=60, priority=9)
    expired = enqueue("jobs", "expired", ttl=1, priority=9)
    low, high, same = (enqueue("jobs", None, priority=p) for p in (0, 5, 5))
    clock.advance(1)

    assert [claim_one("jobs").pk for _ in range(3)] == [high.pk, same.pk, low.pk]
    assert claim_ids("jobs") == []
    clock.advance(59)
    activate()
    assert claim_ids("jobs") == [later.pk]
    assert expired.pk not in Message.objects.filter(state="locked").values_list("pk", flat=True)


@pytest.mark.rule("2.1")
def test_paused_queue_delivers_nothing(clock, queue):
    message = enqueue("jobs", None)
    queue.pause()

    assert claim_ids("jobs") == []

    queue.resume()
    assert claim_ids("jobs") == [message.pk]


@pytest.mark.rule("2.2")
def test_claim_returns_lease_and_content_and_counts_the_delivery(clock, queue):
    stored = enqueue("jobs", {"a": 1})

    message = claim_one("jobs", worker="me")

    assert (message.pk, message.data, message.delivery_count) == (stored.pk, {"a": 1}, 1)
    assert (message.locked_by, message.state, message.locked_at) == ("me", "locked", clock.now)
    assert message.lease == Lease(queue="jobs", id=stored.pk, lock_token=message.lock_token)
    assert len(bytes.fromhex(message.lock_token)) >= 16
    assert Message.objects.get(pk=stored.pk).lock_token == message.lock_token


@pytest.mark.rule("2.2")
@pytest.mark.parametrize(
    ("lock_duration", "seconds"),
    [(None, 7), (0.25, 0.25), (timedelta(hours=1), 3_600)],
    ids=["queue", "seconds", "timedelta"],
)
def test_lease_lasts_for_the_lock_duration(clock, make_queue, lock_duration, seconds):
    make_queue("jobs", lock_duration=7)
    enqueue("jobs", None)

    message = claim_one("jobs", lock_duration=lock_duration)

    assert message.locked_until == clock.now + timedelta(seconds=seconds)


@pytest.fixture
def statements():
    """The first word of each statement."""
    words = []

    def watch(execute, sql, *arguments):
        words.append(sql.split()[0])
        return execute(sql, *arguments)

    with connection.execute_wrapper(watch):
        yield words


@pytest.mark.rule("2.2")
def test_claim_of_state_lease_count_and_content_is_one_statement(clock, queue, statements):
    enqueue("jobs", {"a": 1})
    statements.clear()

    assert claim_one("jobs").data == {"a": 1}

    assert statements in (["UPDATE"], ["BEGIN", "UPDATE"])


@pytest.mark.rule("2.3")
def test_batch_is_one_statement_and_one_commit_in_claim_order(clock, queue, statements):
    ids = [enqueue("jobs", None, priority=n % 3).pk for n in range(50)]
    statements.clear()

    batch = Message.objects.claim("jobs", limit=40)

    assert statements in (["UPDATE"], ["BEGIN", "UPDATE"])
    expected = sorted(ids, key=lambda id: (-(ids.index(id) % 3), id))[:40]
    assert [message.pk for message in batch] == expected
    assert {(m.locked_at, m.delivery_count) for m in batch} == {(clock.now, 1)}
    assert len({message.lock_token for message in batch}) == 40


@pytest.mark.rule("2.3")
def test_batch_has_at_most_one_message_of_each_line(clock, group_queue, strict_queue):
    ids = [enqueue("groups", None, group_id=g).pk for g in ("a", "a", "b", "b", "b", "c")]
    first, _ = (enqueue("strict", None).pk for _ in range(2))

    assert claim_ids("groups") == [ids[0], ids[2], ids[5]]
    assert claim_ids("strict") == [first]


@pytest.mark.rule("2.4")
def test_message_under_a_live_lease_is_not_claimed(clock, queue):
    message = enqueue_and_claim("jobs")
    clock.advance(29.999)

    assert reap() == []
    assert claim_ids("jobs") == []
    message.complete()


@pytest.mark.rule("2.4")
def test_message_under_a_renewed_lease_is_not_claimed(clock, queue):
    message = enqueue_and_claim("jobs")
    clock.advance(29)
    message.renew()
    clock.advance(29)

    assert reap() == []
    assert claim_ids("jobs") == []


@pytest.mark.rule("2.7")
def test_claim_in_the_callers_atomic_is_refused(clock, queue):
    enqueue("jobs", None)

    with transaction.atomic():
        with pytest.raises(TransactionRefused):
            Message.objects.claim("jobs")
        enqueue("jobs", None)

    assert [m.delivery_count for m in Message.objects.all()] == [0, 0]


@pytest.mark.rule("2.7")
def test_claim_with_autocommit_off_is_refused(clock, queue):
    enqueue("jobs", None)
    transaction.set_autocommit(False)
    try:
        with pytest.raises(TransactionRefused):
            Message.objects.claim("jobs")
    finally:
        transaction.rollback()
        transaction.set_autocommit(True)

    assert claim_one("jobs").delivery_count == 1


@pytest.mark.rule("2.7")
@pytest.mark.django_db(transaction=False)
def test_claim_in_a_testcase_is_allowed(clock, queue):
    assert connection.in_atomic_block
    enqueue("jobs", None)

    assert claim_one("jobs")
    with pytest.raises(TransactionRefused), transaction.atomic():
        Message.objects.claim("jobs")
