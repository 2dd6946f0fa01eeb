"""find() lists messages page by page, in an order that an index has."""

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from django_mqlite import QueueNotFound
from django_mqlite.models import Message
from tests.support.verbs import claim_one, dead_letter, enqueue_and_claim

pytestmark = pytest.mark.django_db


@pytest.fixture
def others(make_queue):
    return make_queue("others", retain_completed=60)


def enqueue(queue="jobs", data=None, **options):
    return Message.objects.enqueue(queue, data, **options).pk


def one_in_each_state(queue):
    """By state, in the order of a queue's list."""
    completed = enqueue_and_claim(queue)
    completed.complete()
    dead = dead_letter(queue)
    deferred = enqueue_and_claim(queue)
    deferred.defer()
    scheduled = enqueue(queue, delay=60)
    locked = enqueue_and_claim(queue)
    active = enqueue(queue)
    return {
        "locked": locked.pk,
        "active": active,
        "scheduled": scheduled,
        "deferred": deferred.pk,
        "dead_lettered": dead.pk,
        "completed": completed.pk,
    }


def found(**wanted):
    return list(Message.objects.find(**wanted).ids)


def all_pages(limit, **wanted):
    """Every id, a page after the other, and the lengths of the pages."""
    ids, lengths, after = [], [], None
    while True:
        page = Message.objects.find(limit=limit, after=after, **wanted)
        ids += page.ids
        lengths.append(len(page.ids))
        after = page.next
        if after is None:
            return ids, lengths


def test_without_a_wish_all_there_are_the_newest_first(queue, others):
    ids = [enqueue(name) for name in ("jobs", "others", "jobs")]

    assert found() == ids[::-1]


def test_a_queues_list_goes_from_what_is_at_work_to_what_is_over(queue, others):
    enqueue("jobs")
    expected = one_in_each_state("others")

    assert found(queue="others") == list(expected.values())


def test_a_state_of_a_queue_in_the_order_of_its_turn(queue, others, clock):
    low, high = enqueue(priority=1), enqueue(priority=5)
    late, soon = enqueue(delay=60), enqueue(delay=5)
    enqueue("others")

    assert found(queue="jobs", state="active") == [high, low]
    assert found(queue="jobs", state="scheduled") == [soon, late]


def test_a_state_of_all_queues_goes_by_queue_and_the_dead_by_death(queue, others, clock):
    active = [enqueue(name) for name in ("others", "jobs", "others")]
    dead = []
    for name in ("jobs", "others", "jobs"):
        dead.append(dead_letter(name, priority=9).pk)
        clock.advance(1)

    assert found(state="active") == [active[1], active[0], active[2]]
    assert found(state="dead_lettered") == dead[::-1]
    assert found(state="dead_lettered", queue="jobs") == [dead[2], dead[0]]


def test_a_group_the_newest_first_within_queue_and_state(queue, make_queue):
    make_queue("groups")
    first = enqueue("groups", group_id="a")
    enqueue("groups", group_id="b")
    second = enqueue("groups", group_id="a")
    third = enqueue("jobs", group_id="a")
    claim_one("jobs")

    assert found(group="a") == [third, second, first]
    assert found(group="a", queue="groups") == [second, first]
    assert found(group="a", state="locked") == [third]


def test_a_text_is_an_id_a_message_id_a_correlation_id_or_the_beginning_of_a_subject(queue):
    by_message_id = enqueue(message_id="order-1")
    by_correlation = enqueue(correlation_id="order-1")
    by_subject = enqueue(subject="order-17.paid")
    enqueue(subject="an order-1", message_id="order", correlation_id="order-11")

    assert found(text="order-1") == [by_correlation, by_message_id, by_subject]
    assert found(text=str(by_subject)) == [by_subject]
    assert found(text="Order-1") == []
    assert found(text="order-1", state="scheduled") == []
    assert found(text="order-1", queue="jobs", group="none") == []


@pytest.mark.parametrize("text", ["%", "_", "'", "\0", "ü", "9" * 40, "-1", "²", "\U0010ffff"])
def test_whatever_is_searched_for_is_only_text(queue, text):
    enqueue(subject="order")

    assert found(text=text) == []


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 12, 50])
@pytest.mark.parametrize(
    "wanted",
    [
        {},
        {"queue": "others"},
        {"state": "active"},
        {"state": "dead_lettered"},
        {"group": "a"},
        {"text": "m"},
    ],
    ids=str,
)
def test_the_pages_together_are_the_list_whatever_their_length(queue, others, limit, wanted):
    for _ in range(2):
        one_in_each_state("others")
        one_in_each_state("jobs")
    for number in range(5):
        enqueue("others", message_id="m", subject=f"m{number}")
        enqueue("jobs", group_id="a", priority=0)
    whole = found(limit=1_000, **wanted)

    ids, lengths = all_pages(limit, **wanted)

    assert ids == whole
    assert set(lengths[:-1]) <= {limit}


@pytest.mark.parametrize("state", ["active", "scheduled", "dead_lettered"])
def test_a_state_of_many_queues_is_one_statement(make_queue, clock, state):
    for number in range(30):
        make_queue(f"queue-{number}")
        one_in_each_state(f"queue-{number}")

    with CaptureQueriesContext(connection) as captured:
        assert len(found(state=state)) == 30

    assert len(captured) == 1


def test_nothing_is_a_page_without_a_next_one(queue):
    page = Message.objects.find(queue="jobs")

    assert (page.ids, page.next) == ((), None)


def test_bad_wishes_are_refused(queue):
    with pytest.raises(QueueNotFound, match="Did you mean 'jobs'"):
        found(queue="job")
    with pytest.raises(ValueError, match="state must be one of active, locked"):
        found(state="asleep")
    with pytest.raises(ValueError, match="limit"):
        found(limit=0)
    for place in ("", "1", "1-", "-1-2", "1-2-3", "9" * 30 + "-1", "a-b"):
        with pytest.raises(ValueError, match="after must be the `next` of a page"):
            found(after=place)


def test_a_place_beyond_the_end_is_an_empty_page(queue):
    enqueue()

    assert found(queue="jobs", after="99-5") == []
    assert found(queue="jobs", after="1-5") == []
