"""2 Claim."""

from datetime import timedelta

import pytest
from django.db import connection, transaction

from django_mqlite import TransactionRefused, enqueue
from django_mqlite.models import Message
from django_mqlite.timing import use_clock
from tests.support.transactions import another_connection, another_writer_gets_in
from tests.support.verbs import activate, claim_ids, claim_one, enqueue_and_claim, reap

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.rule("2.1")
def test_a_claim_takes_the_eligible_head_by_priority_then_id(clock, queue):
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
def test_a_paused_queue_gives_nothing(clock, queue):
    enqueue("jobs", None)
    queue.pause()

    assert claim_ids("jobs") == []


@pytest.mark.rule("2.2")
def test_a_claim_returns_lease_and_content_and_counts_the_delivery(clock, queue):
    stored = enqueue("jobs", {"a": 1})

    message = claim_one("jobs", worker="me")

    assert (message.pk, message.data, message.delivery_count) == (stored.pk, {"a": 1}, 1)
    assert (message.locked_by, message.state) == ("me", "locked")
    assert message.locked_until == clock.now + timedelta(seconds=30)
    assert len(bytes.fromhex(message.lock_token)) >= 16
    assert Message.objects.get(pk=stored.pk).lock_token == message.lock_token


@pytest.mark.rule("2.2")
def test_state_lease_count_and_content_are_one_statement(clock, queue):
    enqueue("jobs", None)
    statements = []

    def watch(execute, sql, *arguments):
        statements.append(sql.split()[0])
        return execute(sql, *arguments)

    with connection.execute_wrapper(watch):
        Message.objects.claim("jobs")

    assert statements in (["UPDATE"], ["BEGIN", "UPDATE"])


@pytest.mark.rule("2.3")
def test_a_batch_is_one_statement_and_one_commit_in_claim_order(clock, queue):
    ids = [enqueue("jobs", None, priority=n % 3).pk for n in range(50)]
    statements = []

    def watch(execute, sql, *arguments):
        statements.append(sql.split()[0])
        return execute(sql, *arguments)

    with another_connection() as other, connection.execute_wrapper(watch):
        other.execute("BEGIN")
        assert other.execute("SELECT count(*) FROM mqlite_messages").fetchone() == (50,)
        batch = Message.objects.claim("jobs", limit=40)

    assert statements in (["UPDATE"], ["BEGIN", "UPDATE"])
    expected = sorted(ids, key=lambda id: (-(ids.index(id) % 3), id))[:40]
    assert [message.pk for message in batch] == expected
    assert {message.locked_at for message in batch} == {clock.now}


@pytest.mark.rule("2.3")
def test_a_batch_holds_at_most_one_message_of_a_group(clock, group_queue):
    ids = [enqueue("groups", None, group_id=g).pk for g in ("a", "a", "b", "b", "b", "c")]

    assert claim_ids("groups") == [ids[0], ids[2], ids[5]]


@pytest.mark.rule("2.3")
def test_a_batch_holds_at_most_one_message_of_a_strict_queue(clock, strict_queue):
    first, _ = (enqueue("strict", None).pk for _ in range(2))

    assert claim_ids("strict") == [first]


@pytest.mark.rule("2.3")
def test_the_time_is_sampled_after_the_writer_was_admitted(queue, clock):
    enqueue("jobs", None)

    class LateClock:
        """Tells whether the write lock was ours when the time was asked for."""

        admitted = None

        def now_ms(self):
            self.admitted = not another_writer_gets_in()
            return clock.now_ms()

    with use_clock(LateClock()) as late:
        Message.objects.claim("jobs")

    assert late.admitted is True


@pytest.mark.rule("2.4")
def test_a_message_under_a_live_lease_is_never_given_to_anyone_else(clock, queue):
    message = enqueue_and_claim("jobs")
    clock.advance(29.999)

    assert reap() == []
    assert claim_ids("jobs") == []
    message.complete()


@pytest.mark.rule("2.4")
def test_a_renewed_lease_is_as_live_as_a_new_one(clock, queue):
    message = enqueue_and_claim("jobs")
    clock.advance(29)
    message.renew()
    clock.advance(29)

    assert reap() == []
    assert claim_ids("jobs") == []


@pytest.mark.rule("2.7")
def test_claiming_inside_the_callers_atomic_is_refused(clock, queue):
    enqueue("jobs", None)

    with transaction.atomic():
        with pytest.raises(TransactionRefused):
            Message.objects.claim("jobs")
        enqueue("jobs", None)

    assert [m.delivery_count for m in Message.objects.all()] == [0, 0]


@pytest.mark.rule("2.7")
def test_claiming_with_autocommit_off_is_refused(clock, queue):
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
def test_claiming_inside_a_testcase_is_allowed(clock, queue):
    assert connection.in_atomic_block
    enqueue("jobs", None)

    assert claim_one("jobs")
    with pytest.raises(TransactionRefused), transaction.atomic():
        Message.objects.claim("jobs")
