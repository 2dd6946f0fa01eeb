"""5 Deduplication."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from hashlib import sha256

import pytest
from django.contrib.auth.models import Group
from django.db import connections, transaction

from django_mqlite import Draft, DuplicateConflict, GroupRequired, enqueue, enqueue_many
from django_mqlite.models import DeadLetter, Dedup, Message
from django_mqlite.verbs import sweeps
from tests.support.transactions import committed_messages
from tests.support.verbs import claim_one, dead_letter

pytestmark = pytest.mark.django_db

WINDOW = 60


@pytest.fixture
def window(clock, make_queue):
    return make_queue("jobs", dedup_window=WINDOW)


def stored():
    return list(Message.objects.order_by("pk").values_list("pk", flat=True))


def test_queue_without_a_window_stores_every_message(clock, queue):
    first, second = (enqueue("jobs", "same", message_id="m") for _ in range(2))

    assert stored() == [first.pk, second.pk]
    assert (first.duplicate, second.duplicate) == (False, False)
    assert not Dedup.objects.exists()


@pytest.mark.rule("5.1")
def test_key_is_the_message_id_or_else_the_data(window):
    with_id = enqueue("jobs", "same", message_id="m")
    with_another = enqueue("jobs", "same", message_id="n")
    without = enqueue("jobs", "same")
    other_data = enqueue("jobs", "other")

    assert stored() == [with_id.pk, with_another.pk, without.pk, other_data.pk]
    assert enqueue("jobs", "same").pk == without.pk
    assert len(stored()) == 4


SAME_BYTES = [(1, "1"), (True, "true"), (None, "null"), ({"a": 1}, '{"a":1}'), ("", b""), (1, b"1")]
"""Different data with the same body."""


@pytest.mark.rule("5.1")
@pytest.mark.parametrize(("data", "other"), SAME_BYTES, ids=str)
@pytest.mark.parametrize("at_once", [False, True], ids=["enqueue", "enqueue_many"])
def test_same_body_of_another_type_is_other_data(window, data, other, at_once):
    if at_once:
        first, second = enqueue_many("jobs", [data, other])
    else:
        first, second = enqueue("jobs", data), enqueue("jobs", other)

    assert stored() == [first.pk, second.pk]
    assert [message.data for message in Message.objects.claim("jobs", limit=9)] == [data, other]
    assert [enqueue("jobs", again).pk for again in (data, other)] == [first.pk, second.pk]


@pytest.mark.rule("5.1")
def test_given_content_type_is_part_of_the_key(window):
    known = enqueue("jobs", {"a": 1})

    assert enqueue("jobs", b'{"a":1}', content_type="application/json").pk == known.pk
    assert enqueue("jobs", {"a": 1}, content_type="application/vnd.order+json").pk > known.pk


@pytest.mark.rule("5.1")
def test_subject_and_group_are_no_part_of_the_key(window):
    original = enqueue("jobs", "a", subject="placed", group_id="7")

    assert enqueue("jobs", "a", subject="paid", group_id="8").pk == original.pk


@pytest.mark.rule("5.1")
def test_message_id_that_looks_like_a_hash_is_no_hash(window):
    body = b"same"
    by_body = enqueue("jobs", body)

    by_id = enqueue("jobs", body, message_id=sha256(body).hexdigest())

    assert stored() == [by_body.pk, by_id.pk]


@pytest.mark.rule("5.1")
def test_key_belongs_to_its_queue(window, make_queue):
    make_queue("other", dedup_window=WINDOW)

    here, there = enqueue("jobs", "a", message_id="m"), enqueue("other", "b", message_id="m")

    assert stored() == [here.pk, there.pk]


@pytest.mark.rule("5.2")
@pytest.mark.parametrize("key", [{"message_id": "m"}, {}], ids=["message_id", "body"])
def test_duplicate_returns_the_original_and_stores_nothing(window, clock, key):
    original = enqueue("jobs", {"a": 1}, **key)
    clock.advance(1)

    again = enqueue("jobs", {"a": 1}, delay=30, subject="other", **key)

    assert (again.pk, again.duplicate, original.duplicate) == (original.pk, True, False)
    assert (again.data, again.state, again.subject) == ({"a": 1}, "active", None)
    assert stored() == [original.pk]


@pytest.mark.rule("5.2")
def test_duplicate_in_a_batch_returns_the_original(window):
    first, again, other = enqueue_many("jobs", ["a", "a", "b"])

    assert (again.pk, again.duplicate) == (first.pk, True)
    assert stored() == [first.pk, other.pk]


@pytest.mark.rule("5.3")
@pytest.mark.parametrize(("data", "other"), [("a", "b"), *SAME_BYTES], ids=str)
def test_same_key_with_other_data_is_a_conflict(window, data, other):
    original = enqueue("jobs", data, message_id="m")

    with pytest.raises(DuplicateConflict) as caught:
        enqueue("jobs", other, message_id="m")

    error = caught.value
    assert (error.queue, error.message_id, error.original) == ("jobs", "m", original.pk)
    assert stored() == [original.pk]


@pytest.mark.rule("5.3")
def test_conflict_in_a_batch_affects_only_its_position(window):
    first, conflict, last = enqueue_many(
        "jobs", [Draft("a", message_id="m"), Draft("b", message_id="m"), "c"]
    )

    assert isinstance(conflict, DuplicateConflict)
    assert conflict.original == first.pk
    assert stored() == [first.pk, last.pk]


@pytest.mark.rule("5.3")
@pytest.mark.django_db(transaction=True)
def test_conflict_leaves_the_callers_transaction_usable(window):
    original = enqueue("jobs", "a", message_id="m")

    with transaction.atomic():
        Group.objects.create(name="before")
        with pytest.raises(DuplicateConflict):
            enqueue("jobs", "b", message_id="m")
        assert enqueue("jobs", "a", message_id="m").duplicate
        after = enqueue("jobs", "c")
        Group.objects.create(name="after")

    assert committed_messages() == [original.pk, after.pk]
    assert Group.objects.count() == 2


@pytest.mark.rule("5.4")
@pytest.mark.parametrize("retain", [0, 3_600], ids=["deleted", "retained"])
def test_window_outlives_its_message(clock, make_queue, retain):
    make_queue("jobs", dedup_window=WINDOW, retain_completed=retain)
    original = enqueue("jobs", "a", message_id="m")
    claim_one("jobs").complete()

    again = enqueue("jobs", "a", message_id="m")

    assert (again.pk, again.duplicate) == (original.pk, True)
    with pytest.raises(DuplicateConflict):
        enqueue("jobs", "b", message_id="m")


@pytest.mark.rule("5.4")
@pytest.mark.parametrize("swept", [False, True])
@pytest.mark.parametrize(("after", "known"), [(59.999, True), (60, False)])
def test_window_ends_on_time_swept_or_not(window, clock, swept, after, known):
    original = enqueue("jobs", "a", message_id="m")
    clock.advance(after)
    if swept:
        assert sweeps.prune_records("default", limit=9) == (0 if known else 1)

    again = enqueue("jobs", "a", message_id="m")

    assert (again.pk == original.pk) is known


@pytest.mark.rule("5.4")
def test_duplicate_does_not_extend_the_window(window, clock):
    original = enqueue("jobs", "a", message_id="m")
    clock.advance(59)
    enqueue("jobs", "a", message_id="m")
    clock.advance(1)

    assert enqueue("jobs", "a", message_id="m").pk > original.pk


@pytest.mark.rule("5.5")
def test_redrive_ignores_the_window(window, make_queue):
    make_queue("other", dedup_window=WINDOW)
    dead = dead_letter("jobs", "a", message_id="m")

    assert DeadLetter.objects.redrive([dead.pk]) == 1
    again = claim_one("jobs")
    assert (again.pk, again.data) == (dead.pk, "a")
    again.reject("Broken")

    enqueue("other", "a", message_id="m")
    assert DeadLetter.objects.redrive([dead.pk], into="other") == 1
    assert [m.data for m in Message.objects.claim("other", limit=9)] == ["a", "a"]


@pytest.mark.rule("5.6")
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    "outer", [nullcontext, transaction.atomic], ids=["transaction", "savepoint"]
)
def test_rolled_back_enqueue_leaves_no_trace(window, outer):
    with outer():
        with pytest.raises(RuntimeError), transaction.atomic():
            enqueue("jobs", "a", message_id="m")
            raise RuntimeError
        assert not Dedup.objects.exists()
        second = enqueue("jobs", "b", message_id="m")

    assert second.duplicate is False
    assert committed_messages() == [second.pk]


@pytest.mark.rule("5.6")
@pytest.mark.django_db(transaction=True)
def test_enqueue_that_waited_for_a_rollback_is_stored(window):
    def send():
        try:
            return enqueue("jobs", "b", message_id="m")
        finally:
            connections["default"].close()

    with ThreadPoolExecutor(1) as other:
        with pytest.raises(RuntimeError), transaction.atomic():
            enqueue("jobs", "a", message_id="m")
            sent = other.submit(send)
            raise RuntimeError
        second = sent.result(30)

    assert second.duplicate is False
    assert committed_messages() == [second.pk]


@pytest.mark.rule("5.6")
def test_refused_enqueue_starts_no_window(clock, make_queue):
    make_queue("jobs", dedup_window=WINDOW, ordering_mode="group_fifo")
    with pytest.raises(GroupRequired):
        enqueue("jobs", "a", message_id="m")

    message = enqueue("jobs", "b", message_id="m", group_id="g")

    assert stored() == [message.pk]
