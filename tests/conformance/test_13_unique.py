"""§13: while an unfinished message has a unique key, no other one is stored with it."""

from datetime import timedelta

import pytest
from django.db import connection, transaction

from django_mqlite import (
    Draft,
    DuplicateConflict,
    GroupRequired,
    enqueue,
    enqueue_many,
    publish,
)
from django_mqlite.models import DeadLetter, Message, Queue, Subscription
from django_mqlite.verbs import sweeps
from django_mqlite.worker.reaper import run_all
from tests.support.verbs import claim_one, reap, state_of

pytestmark = pytest.mark.django_db


def enqueue_k(queue="jobs", data="first", **options):
    return enqueue(str(queue), data, unique_key="k", **options)


def active():
    return enqueue_k()


def scheduled():
    return enqueue_k(delay=60)


def locked():
    enqueue_k()
    return claim_one("jobs")


def deferred():
    message = locked()
    message.defer()
    return message


def retrying():
    message = locked()
    message.abandon(delay=60)
    return message


def lease_expired(clock):
    message = locked()
    clock.advance(31)
    return message


def blocked():
    enqueue("jobs", 0, group_id="g")
    return enqueue_k(group_id="g")


UNFINISHED = [active, scheduled, locked, deferred, retrying, blocked]


# 13.1: an unfinished message has the key


@pytest.mark.rule("13.1")
@pytest.mark.parametrize("state", UNFINISHED, ids=lambda state: state.__name__)
def test_message_with_the_key_of_an_unfinished_one_is_not_stored(clock, queue, state):
    first = state()
    before = Message.objects.count()

    second = enqueue_k(data="second")

    assert (second.pk, second.duplicate, second.data) == (first.pk, True, "first")
    assert second.state == state_of(first)
    assert not first.duplicate
    assert Message.objects.count() == before


@pytest.mark.rule("13.1")
def test_unreleased_lease_keeps_the_unique_key(clock, queue):
    first = lease_expired(clock)

    assert enqueue_k().pk == first.pk
    reap()
    assert enqueue_k().pk == first.pk


@pytest.mark.rule("13.1")
def test_duplicate_of_a_claimed_message_holds_no_lease(clock, queue):
    locked()

    assert enqueue_k().lease is None


@pytest.mark.rule("13.1")
def test_unique_key_belongs_to_its_queue(clock, queue, make_queue):
    make_queue("others")
    enqueue_k("jobs")

    assert not enqueue_k("others").duplicate
    assert not enqueue("jobs", None, unique_key="another").duplicate
    assert not enqueue("jobs", None).duplicate


@pytest.mark.rule("13.1")
def test_rules_of_the_queue_are_checked_before_the_unique_key(clock, group_queue):
    enqueue_k("groups", group_id="g")

    with pytest.raises(GroupRequired):
        enqueue_k("groups")


# 13.2: the key is free again


def completed():
    locked().complete()


def retained():
    Queue.objects.configure("jobs", retain_completed=60)
    completed()


def dead_lettered():
    locked().reject("Broken")


def cancelled():
    scheduled().cancel()


def claimed_and_deleted():
    active()
    Message.objects.claim_and_delete("jobs")


def rolled_back():
    with transaction.atomic():
        active()
        transaction.set_rollback(True)


ENDED = [completed, retained, dead_lettered, cancelled, claimed_and_deleted, rolled_back]


@pytest.mark.rule("13.2")
@pytest.mark.parametrize("end", ENDED, ids=lambda end: end.__name__)
def test_unique_key_is_free_when_its_message_has_ended(clock, queue, end):
    end()

    assert not enqueue_k().duplicate


@pytest.mark.rule("13.2")
@pytest.mark.parametrize("dead_letter_on_expire", [True, False])
@pytest.mark.parametrize("is_swept", [True, False], ids=["swept", "not swept"])
def test_expired_message_keeps_no_unique_key(clock, make_queue, dead_letter_on_expire, is_swept):
    make_queue("jobs", dead_letter_on_expire=dead_letter_on_expire)
    first = enqueue_k(ttl=10)
    clock.advance(10)
    if is_swept:
        sweeps.expire("default", limit=10)

    second = enqueue_k()

    assert not second.duplicate
    assert state_of(first) == ("dead_lettered" if dead_letter_on_expire else "gone")
    assert claim_one("jobs").pk == second.pk


@pytest.mark.rule("13.2")
def test_expired_message_under_a_lease_keeps_its_unique_key(clock, queue):
    first = enqueue_k(ttl=10)
    claim_one("jobs")
    clock.advance(10)

    assert enqueue_k().pk == first.pk


@pytest.mark.rule("13.2")
def test_expired_message_keeps_no_unique_key_in_a_batch(clock, queue):
    enqueue_k(ttl=10)
    clock.advance(10)

    (message,) = enqueue_many("jobs", [1], unique_key="k")

    assert not message.duplicate


# 13.3: the caller's transaction


@pytest.mark.rule("13.3")
@pytest.mark.parametrize(
    "again",
    [
        enqueue_k,
        lambda: enqueue_many("jobs", [1, 2], unique_key="k")[0],
    ],
    ids=["enqueue", "enqueue_many"],
)
def test_duplicate_leaves_the_callers_transaction_usable(clock, queue, again):
    first = enqueue_k()

    with transaction.atomic():
        before = enqueue("jobs", "before")
        assert again().pk == first.pk
        after = enqueue("jobs", "after")

    assert state_of(before) == state_of(after) == "active"
    assert not connection.needs_rollback


@pytest.mark.rule("13.3")
def test_savepoint_rollback_frees_the_unique_key(clock, queue):
    with transaction.atomic():
        with transaction.atomic():
            enqueue_k()
            transaction.set_rollback(True)

        assert not enqueue_k().duplicate


@pytest.mark.rule("13.3")
def test_completion_frees_the_unique_key_in_its_own_transaction(clock, queue):
    message = locked()

    with transaction.atomic():
        message.complete()
        successor = enqueue_k()

    assert not successor.duplicate


# 13.4: batches


@pytest.mark.rule("13.4")
def test_batch_stores_the_first_message_of_each_unique_key(clock, queue):
    taken = enqueue("jobs", "taken", unique_key="a")
    keys = ["a", "b", None, "b", "c", None, "a"]
    drafts = [Draft(number, unique_key=key) for number, key in enumerate(keys)]

    messages = enqueue_many("jobs", drafts)

    assert [message.duplicate for message in messages] == [
        key == "a" or number == 3 for number, key in enumerate(keys)
    ]
    assert messages[0].pk == messages[6].pk == taken.pk
    assert messages[1].pk == messages[3].pk
    new = [message for message in messages if not message.duplicate]
    assert [message.pk for message in new] == sorted({message.pk for message in new})
    assert [message.data for message in new] == [1, 2, 4, 5]
    assert Message.objects.count() == 1 + len(new)


@pytest.mark.rule("13.4")
def test_unique_key_of_an_earlier_chunk_is_taken(clock, queue):
    drafts = [Draft(number, unique_key=str(number % 1_001)) for number in range(2_002)]

    messages = enqueue_many("jobs", drafts)

    assert [message.duplicate for message in messages] == [False] * 1_001 + [True] * 1_001
    assert [m.pk for m in messages[:1_001]] == [m.pk for m in messages[1_001:]]


@pytest.mark.rule("13.4")
def test_batch_of_duplicates_stores_nothing(clock, queue):
    first = enqueue_k()

    assert [message.pk for message in enqueue_many("jobs", [1, 2], unique_key="k")] == [
        first.pk
    ] * 2


# 13.5: with the deduplication window


@pytest.mark.rule("13.5")
def test_deduplication_window_is_checked_before_the_unique_key(clock, make_queue):
    make_queue("jobs", dedup_window=60)
    first = enqueue_k(message_id="m")
    claim_one("jobs").complete()
    second = enqueue_k(message_id="n")

    repeated = enqueue_k(message_id="m")

    assert (repeated.pk, repeated.duplicate) == (first.pk, True)
    assert second.pk != first.pk
    with pytest.raises(DuplicateConflict):
        enqueue_k(message_id="m", data="other")


@pytest.mark.rule("13.5")
@pytest.mark.parametrize(
    "put",
    [enqueue, lambda queue, data, **options: enqueue_many(queue, [data], **options)[0]],
    ids=["enqueue", "enqueue_many"],
)
def test_duplicate_by_unique_key_opens_no_window(clock, make_queue, put):
    make_queue("jobs", dedup_window=60)
    first = put("jobs", 1, message_id="m", unique_key="k")

    assert put("jobs", 2, message_id="n", unique_key="k").pk == first.pk

    claim_one("jobs").complete()
    assert not put("jobs", 3, message_id="n", unique_key="k").duplicate


@pytest.mark.rule("13.5")
def test_removed_window_is_not_checked_for_a_taken_unique_key(clock, make_queue):
    make_queue("jobs", dedup_window=60)
    enqueue("jobs", 1, message_id="m")
    Queue.objects.configure("jobs", dedup_window=0)
    holder = enqueue_k()

    assert enqueue_k(message_id="m", data=2).pk == holder.pk


# 13.6: topics


@pytest.mark.rule("13.6")
def test_publish_stores_a_copy_where_the_unique_key_is_free(clock, db):
    for subscription in ("stock", "mails"):
        Subscription.objects.subscribe("orders", subscription)
    first = {message.queue: message for message in publish("orders", 1, unique_key="k")}
    claim_one("stock").complete()

    second = {message.queue: message for message in publish("orders", 2, unique_key="k")}

    assert not second["stock"].duplicate
    assert second["mails"].duplicate
    assert second["mails"].pk == first["mails"].pk


# 13.7: redrive


def dead(key="k", queue="jobs"):
    enqueue(queue, None, unique_key=key)
    claim_one(queue).reject("Broken")
    return Message.objects.latest("pk")


@pytest.mark.rule("13.7")
def test_dead_letter_whose_unique_key_is_taken_is_not_redriven(clock, queue):
    letter, free, plain = dead(), dead("free"), dead(None)
    holder = enqueue_k()

    redriven = DeadLetter.objects.redrive([letter.pk, free.pk, plain.pk])

    assert (redriven, redriven.duplicates, redriven.referenced) == (2, (letter.pk,), ())
    assert state_of(letter) == "dead_lettered"
    assert state_of(free) == state_of(plain) == state_of(holder) == "active"
    claim_one("jobs")
    assert enqueue("jobs", None, unique_key="free").pk == free.pk


@pytest.mark.rule("13.7")
def test_dead_letter_is_redriven_once_its_unique_key_is_free(clock, queue):
    letter = dead()
    enqueue_k()
    claim_one("jobs").complete()

    assert DeadLetter.objects.redrive([letter.pk]) == 1
    assert enqueue_k().pk == letter.pk


@pytest.mark.rule("13.7")
@pytest.mark.parametrize("into", [None, "others"])
def test_redrive_takes_the_first_dead_letter_of_a_unique_key(clock, queue, make_queue, into):
    make_queue("others")
    letters = [dead(), dead("other"), dead(), dead(None), dead(None)]

    redriven = DeadLetter.objects.redrive_queue("jobs", into=into)

    assert (redriven, redriven.duplicates) == (4, (letters[2].pk,))
    assert list(DeadLetter.objects.values_list("pk", flat=True)) == [letters[2].pk]


@pytest.mark.rule("13.7")
def test_redrive_into_a_queue_with_the_unique_key_loses_nothing(clock, queue, make_queue):
    make_queue("others")
    letter, free = dead(), dead("free")
    holder = enqueue_k("others")

    redriven = DeadLetter.objects.redrive([letter.pk, free.pk], into="others")

    assert (redriven, redriven.duplicates) == (1, (letter.pk,))
    assert state_of(letter) == "dead_lettered"
    keys = Message.objects.filter(queue="others").values_list("unique_key", flat=True)
    assert sorted(keys) == ["free", "k"]
    assert state_of(holder) == "active"


@pytest.mark.rule("13.7")
def test_redrive_of_a_queue_names_what_its_unique_keys_keep(clock, queue):
    letters = [dead(str(number)) for number in range(3)]
    enqueue("jobs", None, unique_key="1")

    redriven = DeadLetter.objects.redrive_queue("jobs")

    assert (redriven, redriven.duplicates) == (2, (letters[1].pk,))


# 13.8: what keeps a message unfinished keeps its key


@pytest.mark.rule("13.8")
def test_message_keeps_its_unique_key_through_retries_until_its_last(clock, make_queue):
    make_queue("jobs", max_delivery_count=2, backoff_base=1)
    first = enqueue_k()
    claim_one("jobs").abandon(delay=1)
    assert enqueue_k().pk == first.pk
    clock.advance(1)
    run_all("default")
    claim_one("jobs").abandon()

    assert state_of(first) == "dead_lettered"
    assert not enqueue_k().duplicate


@pytest.mark.rule("13.8")
@pytest.mark.parametrize("queue_name", ["groups", "strict"])
def test_unique_keys_and_lines_do_not_affect_each_other(clock, make_queue, queue_name):
    make_queue("groups", ordering_mode="group_fifo")
    make_queue("strict", ordering_mode="strict_fifo")
    group = {"group_id": "g"} if queue_name == "groups" else {}
    first, second, third = (
        enqueue(queue_name, key, unique_key=key, **group) for key in ("a", "b", "c")
    )
    for expected in (first, second):
        claimed = claim_one(queue_name)
        assert claimed.pk == expected.pk
        claimed.reject("Broken")
    again = enqueue(queue_name, "again", unique_key="b", **group)

    redriven = DeadLetter.objects.redrive([first.pk, second.pk])

    assert (redriven, redriven.duplicates) == (1, (second.pk,))
    order = []
    while claimed := Message.objects.claim(queue_name):
        order.append(claimed[0].pk)
        claimed[0].complete()
    assert order == [first.pk, third.pk, again.pk]


@pytest.mark.parametrize("key", ["", 7, "a\0b", "x" * 1_025, "\ud800"])
def test_invalid_unique_key_is_refused_by_name(clock, queue, key):
    with pytest.raises((TypeError, ValueError), match="unique_key"):
        enqueue("jobs", None, unique_key=key)

    assert not Message.objects.exists()


@pytest.mark.rule("13.8")
def test_unique_key_lasts_as_long_as_its_message_and_no_window(clock, queue):
    first = enqueue_k(delay=timedelta(days=400))
    clock.advance(86_400 * 300)

    assert enqueue_k().pk == first.pk
