"""find() and peek(): pages of messages, in the order of an index, without a change."""

import pytest

from django_mqlite import QueueNotFound
from django_mqlite.models import DeadLetter, Message
from tests.support.verbs import claim_ids, claim_one, dead_letter, enqueue_and_claim

pytestmark = pytest.mark.django_db


@pytest.fixture
def others(make_queue):
    return make_queue("others", retain_completed=60)


def enqueue(queue="jobs", data=None, **options):
    return Message.objects.enqueue(queue, data, **options).pk


def enqueue_every_state(queue):
    """Make a message of each state; return the ids in the order of a queue's list."""
    completed = enqueue_and_claim(queue)
    completed.complete()
    dead = dead_letter(queue)
    deferred = enqueue_and_claim(queue)
    deferred.defer()
    scheduled = enqueue(queue, delay=60)
    locked = enqueue_and_claim(queue)
    active = enqueue(queue)
    return [locked.pk, active, scheduled, deferred.pk, dead.pk, completed.pk]


def find(**filters):
    return list(Message.objects.find(**filters).ids)


def test_list_without_filters_is_newest_first(queue, others):
    ids = [enqueue(name) for name in ("jobs", "others", "jobs")]

    assert find() == ids[::-1]


def test_list_of_a_queue_goes_from_locked_to_completed(queue, others):
    enqueue("jobs")
    expected = enqueue_every_state("others")

    assert find(queue="others") == expected


def test_list_of_a_queue_and_state_is_in_delivery_order(queue, others, clock):
    low, high = enqueue(priority=1), enqueue(priority=5)
    late, soon = enqueue(delay=60), enqueue(delay=5)
    enqueue("others")

    assert find(queue="jobs", state="active") == [high, low]
    assert find(queue="jobs", state="scheduled") == [soon, late]


def test_list_of_a_state_is_by_queue_and_dead_letters_by_death(queue, others, clock):
    active = [enqueue(name) for name in ("others", "jobs", "others")]
    dead = []
    for name in ("jobs", "others", "jobs"):
        dead.append(dead_letter(name, priority=9).pk)
        clock.advance(1)

    assert find(state="active") == [active[1], active[0], active[2]]
    assert find(state="dead_lettered") == dead[::-1]
    assert find(state="dead_lettered", queue="jobs") == [dead[2], dead[0]]


def test_list_of_a_group_is_newest_first(queue, make_queue):
    make_queue("groups")
    first = enqueue("groups", group_id="a")
    enqueue("groups", group_id="b")
    second = enqueue("groups", group_id="a")
    third = enqueue("jobs", group_id="a")
    claim_one("jobs")

    assert find(group="a") == [third, second, first]
    assert find(group="a", queue="groups") == [second, first]
    assert find(group="a", state="locked") == [third]


def test_text_matches_ids_and_the_start_of_a_subject(queue):
    by_message_id = enqueue(message_id="order-1")
    by_correlation = enqueue(correlation_id="order-1")
    by_subject = enqueue(subject="order-17.paid")
    enqueue(subject="an order-1", message_id="order", correlation_id="order-11")

    assert find(text="order-1") == [by_correlation, by_message_id, by_subject]
    assert find(text=str(by_subject)) == [by_subject]
    assert find(text="Order-1") == []
    assert find(text="order-1", state="scheduled") == []
    assert find(text="order-1", queue="jobs", group="none") == []


@pytest.mark.parametrize("text", ["%", "_", "'", "\0", "ü", "9" * 40, "-1", "²", "\U0010ffff"])
def test_text_has_no_special_characters(queue, text):
    enqueue(subject="order")

    assert find(text=text) == []


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 12, 50])
@pytest.mark.parametrize(
    "filters",
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
def test_pages_together_are_the_list(queue, others, limit, filters):
    for _ in range(2):
        enqueue_every_state("others")
        enqueue_every_state("jobs")
    for number in range(5):
        enqueue("others", message_id="m", subject=f"m{number}")
        enqueue("jobs", group_id="a", priority=0)
    ids, lengths, page = [], [], None

    while page is None or page.next is not None:
        page = Message.objects.find(limit=limit, after=page and page.next, **filters)
        ids += page.ids
        lengths.append(len(page.ids))

    assert ids == find(limit=1_000, **filters)
    assert set(lengths[:-1]) <= {limit}


@pytest.mark.parametrize("state", ["active", "scheduled", "dead_lettered"])
def test_state_of_many_queues_is_one_query(make_queue, clock, state, django_assert_num_queries):
    for number in range(30):
        make_queue(f"queue-{number}")
        enqueue_every_state(f"queue-{number}")

    with django_assert_num_queries(1):
        assert len(find(state=state)) == 30


def test_page_after_the_end_is_empty(queue):
    page = Message.objects.find(queue="jobs")
    assert (page.ids, page.next) == ((), None)
    enqueue()

    assert find(queue="jobs", after="99-5") == []
    assert find(queue="jobs", after="1-5") == []


PLACES = ("", "1", "1-", "-1-2", "1-2-3", "9" * 30 + "-1", "a-b")


@pytest.mark.parametrize(
    ("filters", "error", "text"),
    [
        ({"queue": "job"}, QueueNotFound, "Did you mean 'jobs'"),
        ({"state": "asleep"}, ValueError, "state must be one of active, locked"),
        ({"limit": 0}, ValueError, "limit"),
        *(({"after": place}, ValueError, "after must be the `next` of a page") for place in PLACES),
    ],
)
def test_invalid_filter_is_refused_by_name(queue, filters, error, text):
    with pytest.raises(error, match=text):
        find(**filters)


# Peek


def test_peek_shows_the_next_messages_in_claim_order(clock, queue, make_queue):
    make_queue("other")
    enqueue("other")
    enqueue_and_claim("jobs")
    dead_letter("jobs")
    enqueue("jobs", delay=60)
    for priority in (0, 5, -5, 5):
        enqueue("jobs", {"a": 1}, priority=priority, properties={"k": "v"})
    before = list(Message.objects.order_by("pk").values())

    messages = Message.objects.peek("jobs")

    assert list(Message.objects.order_by("pk").values()) == before
    assert {(m.data["a"], m.properties["k"], m.delivery_count, m.lease) for m in messages} == {
        (1, "v", 0, None)
    }
    assert [message.pk for message in messages] == claim_ids("jobs")


def test_peek_shows_blocked_messages_after_all_heads(clock, group_queue):
    first, second, third = (enqueue("groups", n, group_id=g) for n, g in enumerate("aab"))

    assert [m.pk for m in Message.objects.peek("groups")] == [first, third, second]


def test_peek_shows_the_oldest_dead_letter_first(clock, queue):
    ids = [enqueue("jobs") for _ in range(3)]
    claimed = Message.objects.claim("jobs", limit=3)
    for place in (2, 0, 1):
        claimed[place].reject("R", f"number {place}")
        clock.advance(1)
    enqueue("jobs")

    dead = DeadLetter.objects.peek("jobs")

    assert [letter.pk for letter in dead] == [ids[place] for place in (2, 0, 1)]
    assert [letter.dead_letter_description[-1] for letter in dead] == ["2", "0", "1"]
    assert all(isinstance(letter, DeadLetter) for letter in dead)
    assert set(DeadLetter.objects.all()) == set(dead)


@pytest.mark.parametrize("manager", [Message.objects, DeadLetter.objects], ids=["messages", "dead"])
def test_peek_is_limited(clock, queue, manager):
    assert manager.peek("jobs") == []
    for _ in range(12):
        dead_letter("jobs")
    for _ in range(12):
        enqueue("jobs")

    assert [len(manager.peek("jobs", **limit)) for limit in ({}, {"limit": 3}, {"limit": 100})] == [
        10,
        3,
        12,
    ]
    for limit in (0, -1, 2**63):
        with pytest.raises(ValueError, match="limit"):
            manager.peek("jobs", limit=limit)
