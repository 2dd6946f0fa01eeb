"""The lists of queues, messages and dead letters."""

import pytest

from django_mqlite.models import Message
from tests.support.verbs import claim_one, dead_letter, enqueue_and_claim

from .pages import DEAD_LETTERS, LISTS, MESSAGES, QUEUES, listed, text_of


@pytest.mark.parametrize("url", LISTS)
def test_an_empty_database_has_empty_lists(viewer, url):
    assert "error" not in text_of(viewer.get(url)).lower()


def test_queues_are_listed_with_their_depth_by_state(viewer, queue):
    Message.objects.enqueue("jobs", 1, delay=60)
    Message.objects.enqueue("jobs", 2, delay=60)
    dead_letter("jobs")

    page = text_of(viewer.get(QUEUES))

    assert 'href="/admin/django_mqlite/message/?queue=jobs&amp;state=scheduled">2</a>' in page
    assert 'href="/admin/django_mqlite/message/?queue=jobs&amp;state=dead_lettered">1<' in page


def test_messages_are_listed_the_newest_first(viewer, queue):
    first = Message.objects.enqueue("jobs", 1, subject="one")
    second = Message.objects.enqueue("jobs", 2, subject="two")

    assert listed(viewer.get(MESSAGES)) == [second.pk, first.pk]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("queue=jobs", ["job", "later", "dead"]),
        ("state=active", ["job", "other"]),
        ("queue=jobs&state=active", ["job"]),
        ("queue=jobs&state=scheduled", ["later"]),
        ("queue=jobs&state=dead_lettered", ["dead"]),
        ("queue=jobs&state=locked", []),
        ("queue=nowhere", []),
    ],
)
def test_messages_are_filtered_by_queue_and_state(viewer, queue, make_queue, query, expected):
    make_queue("others")
    messages = {
        "dead": dead_letter("jobs"),
        "job": Message.objects.enqueue("jobs", 1),
        "later": Message.objects.enqueue("jobs", 1, delay=5),
        "other": Message.objects.enqueue("others", 1),
    }

    found = listed(viewer.get(f"{MESSAGES}?{query}"))

    assert sorted(found) == sorted(messages[name].pk for name in expected)


def test_claimable_messages_of_a_queue_are_listed_in_claim_order(viewer, queue):
    late = Message.objects.enqueue("jobs", 1)
    urgent = Message.objects.enqueue("jobs", 2, priority=5)

    found = listed(viewer.get(f"{MESSAGES}?queue=jobs&state=active"))

    assert found == [urgent.pk, late.pk]


@pytest.mark.parametrize("term", ["{id}", "order-4711", "trace-9", "SHIPPED"])
def test_search_finds_by_id_message_id_correlation_id_and_subject(viewer, queue, term):
    Message.objects.enqueue("jobs", 0)
    wanted = Message.objects.enqueue(
        "jobs", 1, message_id="order-4711", correlation_id="trace-9", subject="order shipped"
    )

    found = listed(viewer.get(MESSAGES, {"q": term.format(id=wanted.pk)}))

    assert found == [wanted.pk]


@pytest.mark.parametrize("term", ["9" * 30, "²", "%", "'; --"])
def test_a_search_for_what_is_not_there_finds_nothing(viewer, queue, term):
    Message.objects.enqueue("jobs", 1, subject="order")

    assert listed(viewer.get(MESSAGES, {"q": term})) == []


def test_pages_follow_each_other_without_a_count(viewer, queue, django_assert_max_num_queries):
    for number in range(120):
        Message.objects.enqueue("jobs", number)

    with django_assert_max_num_queries(30) as queries:
        pages = [viewer.get(MESSAGES, {"p": number}) for number in (1, 2, 3)]

    assert [len(listed(page)) for page in pages] == [50, 50, 20]
    assert len({id for page in pages for id in listed(page)}) == 120
    assert ["Next page" in text_of(page) for page in pages] == [True, True, False]
    assert ["Previous page" in text_of(page) for page in pages] == [False, True, True]
    assert not any("COUNT(" in query["sql"] for query in queries)


@pytest.mark.parametrize("number", ["0", "-3", "9" * 25, "x"])
def test_a_page_number_that_is_none_leads_back_to_the_list(viewer, queue, number):
    response = viewer.get(MESSAGES, {"p": number}, follow=True)

    assert response.status_code == 200


def test_lists_read_no_body_and_no_lock_token(viewer, queue, django_assert_max_num_queries):
    enqueue_and_claim("jobs", "secret body")
    dead_letter("jobs")

    with django_assert_max_num_queries(20) as queries:
        viewer.get(MESSAGES)
        viewer.get(DEAD_LETTERS)

    asked = " ".join(query["sql"] for query in queries)
    assert '"mqlite_messages"."subject"' in asked
    assert '"mqlite_messages"."body"' not in asked
    assert '"mqlite_messages"."lock_token"' not in asked


@pytest.mark.parametrize("url", LISTS)
def test_a_list_takes_at_most_ten_queries(operator, queue, url, django_assert_max_num_queries):
    for number in range(30):
        dead_letter("jobs", number)

    with django_assert_max_num_queries(10):
        operator.get(url)


def test_dead_letters_are_listed_with_reason_and_last_error(viewer, queue):
    message = enqueue_and_claim("jobs", 1)
    message.abandon(delay=0, error=ValueError("the first error"))
    claim_one("jobs").reject("NoStock", "article 17 is out", error=ValueError("the last error"))

    page = text_of(viewer.get(DEAD_LETTERS))

    assert "NoStock" in page
    assert "article 17 is out" in page
    assert "the last error" in page
    assert "the first error" not in page


def test_the_last_death_is_listed_first(viewer, queue, clock):
    first = dead_letter("jobs")
    clock.advance(1)
    second = dead_letter("jobs")

    assert listed(viewer.get(DEAD_LETTERS)) == [second.pk, first.pk]


@pytest.mark.parametrize("url", [MESSAGES, DEAD_LETTERS])
@pytest.mark.parametrize("lookup", ["lock_token__startswith", "body__contains", "state__in"])
def test_a_query_string_cannot_probe_what_is_not_shown(viewer, queue, url, lookup, caplog):
    enqueue_and_claim("jobs", 1)

    assert viewer.get(url, {lookup: "a"}).status_code == 400


def test_a_query_string_cannot_order_by_another_column(
    viewer, queue, django_assert_max_num_queries
):
    with django_assert_max_num_queries(10) as queries:
        viewer.get(MESSAGES, {"o": "4.-3"})

    (ids,) = [query["sql"] for query in queries if "mqlite_messages" in query["sql"]]
    assert ids.endswith('ORDER BY "mqlite_messages"."id" DESC LIMIT 51')
