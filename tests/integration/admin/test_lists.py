"""The lists of queues, messages and dead letters."""

import html
import re

import pytest

from django_mqlite.models import Message
from tests.support.verbs import claim_one, dead_letter, enqueue_and_claim

from .pages import DEAD_LETTERS, LISTS, MESSAGES, QUEUES, listed, text_of


@pytest.mark.parametrize("url", LISTS)
def test_lists_of_an_empty_database_are_empty(viewer, url):
    assert "errornote" not in text_of(viewer.get(url))


def test_queues_are_listed_with_counts_by_state(viewer, queue):
    Message.objects.enqueue("jobs", 1, delay=60)
    Message.objects.enqueue("jobs", 2, delay=60)
    dead_letter("jobs")

    page = text_of(viewer.get(QUEUES))

    assert 'href="/admin/django_mqlite/message/?queue=jobs&amp;state=scheduled">2</a>' in page
    assert 'href="/admin/django_mqlite/message/?queue=jobs&amp;state=dead_lettered">1<' in page


def test_messages_are_listed_newest_first(viewer, queue):
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


@pytest.mark.parametrize("term", ["{id}", "order-4711", "trace-9", "order sh"])
def test_search_finds_by_id_message_id_correlation_id_and_subject(viewer, queue, term):
    Message.objects.enqueue("jobs", 0)
    wanted = Message.objects.enqueue(
        "jobs", 1, message_id="order-4711", correlation_id="trace-9", subject="order shipped"
    )

    found = listed(viewer.get(MESSAGES, {"q": term.format(id=wanted.pk)}))

    assert found == [wanted.pk]


@pytest.mark.parametrize("term", ["9" * 19, "9" * 30, "9" * 5_000, "²", "%", "'; --", "\0"])
def test_search_without_a_match_finds_nothing(viewer, queue, term):
    Message.objects.enqueue("jobs", 1, subject="order")

    assert listed(viewer.get(MESSAGES, {"q": term})) == []


@pytest.mark.parametrize("query", ["", "queue=jobs", "state=active", "group=g", "q=same"])
def test_pages_continue_without_counting_rows(viewer, queue, django_assert_max_num_queries, query):
    for number in range(120):
        Message.objects.enqueue("jobs", number, subject="same", group_id="g")

    page, ids, lengths = f"{MESSAGES}?{query}", [], []
    with django_assert_max_num_queries(42) as queries:
        while page:
            response = viewer.get(page)
            lengths.append(len(listed(response)))
            ids += listed(response)
            following = re.search(r'<a href="([^"]*)" rel="next"', text_of(response))
            page = following and MESSAGES + html.unescape(following[1])

    assert lengths == [50, 50, 20]
    assert len(set(ids)) == 120
    assert not any("COUNT(" in query["sql"] for query in queries)


def test_later_page_links_to_the_first_page(viewer, queue):
    for number in range(60):
        Message.objects.enqueue("jobs", number)
    first = text_of(viewer.get(MESSAGES))
    (following,) = re.findall(r'<a href="([^"]*)" rel="next"', first)

    second = text_of(viewer.get(MESSAGES + html.unescape(following)))

    assert 'rel="first"' not in first
    assert 'rel="first"' in second
    assert "End of list" in second


@pytest.mark.parametrize("place", ["0", "-3", "9" * 25, "x", "1-", "99-1"])
@pytest.mark.parametrize("url", [MESSAGES, DEAD_LETTERS, DEAD_LETTERS + "?reason=x"])
def test_invalid_position_leads_back_to_the_list(viewer, queue, url, place):
    separator = "&" if "?" in url else "?"
    response = viewer.get(f"{url}{separator}p={place}", follow=True)

    assert response.status_code == 200


def test_dead_letters_are_filtered_by_reason_and_group(viewer, queue):
    for reason, group in (("NoStock", "a"), ("NoStock", "b"), ("NoCard", "a")):
        message = enqueue_and_claim("jobs", 1, group_id=group)
        message.reject(reason)

    def found(query):
        return len(listed(viewer.get(f"{DEAD_LETTERS}?{query}")))

    assert [found("reason=NoStock"), found("group=a"), found("reason=NoStock&group=a")] == [2, 2, 1]
    assert found("reason=No") == 0


def test_filter_form_keeps_the_other_filters(viewer, queue):
    page = text_of(viewer.get(f"{MESSAGES}?queue=jobs&q=x&p=0-1"))

    form = page[page.index('class="mqlite-text-filter"') :]
    form = form[: form.index("</form>")]
    assert '<input type="hidden" name="queue" value="jobs">' in form
    assert '<input type="hidden" name="q" value="x">' in form
    assert 'name="p"' not in form


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
@pytest.mark.parametrize(
    "query", ["", "queue=jobs", "state=active", "state=locked", "group=a", "q=x", "queue=jobs&q=1"]
)
def test_list_needs_at_most_ten_queries(
    operator, queue, make_queue, url, query, django_assert_max_num_queries
):
    for number in range(12):
        make_queue(f"queue-{number}")
        dead_letter(f"queue-{number}")
    Message.objects.enqueue("jobs", 1)

    with django_assert_max_num_queries(10):
        operator.get(f"{url}?{query}")


def test_dead_letters_are_listed_with_reason_and_last_error(viewer, queue):
    message = enqueue_and_claim("jobs", 1)
    message.abandon(delay=0, error=ValueError("the first error"))
    claim_one("jobs").reject("NoStock", "article 17 is out", error=ValueError("the last error"))

    page = text_of(viewer.get(DEAD_LETTERS))

    assert "NoStock" in page
    assert "article 17 is out" in page
    assert "the last error" in page
    assert "the first error" not in page


def test_dead_letters_are_counted_and_filtered_by_error_class(viewer, queue, make_queue):
    make_queue("other")
    for error in (KeyError("id"), ConnectionRefusedError(111, "refused"), KeyError("name")):
        enqueue_and_claim("jobs", 1).reject("Broken", error=error)
    enqueue_and_claim("other", 1).reject("Invalid")

    page = text_of(viewer.get(DEAD_LETTERS))
    of_queue = text_of(viewer.get(DEAD_LETTERS, {"queue": "jobs"}))

    assert "KeyError: &#x27;id&#x27;" in page
    assert '<a href="?error_class=KeyError">2 × KeyError</a>' in page
    assert '<a href="?reason=Invalid">1 × Invalid</a>' in page
    assert "× Invalid" not in of_queue
    assert '<a href="?queue=jobs&amp;error_class=ConnectionRefusedError">1 ×' in of_queue
    assert len(listed(viewer.get(DEAD_LETTERS, {"error_class": "KeyError"}))) == 2
    assert listed(viewer.get(DEAD_LETTERS, {"error_class": "Key"})) == []


def test_error_counts_of_an_unknown_queue_are_left_out(viewer, queue):
    enqueue_and_claim("jobs", 1).reject("Broken", error=KeyError("id"))

    assert "× KeyError" not in text_of(viewer.get(DEAD_LETTERS, {"queue": "nope"}))


def test_error_equal_to_the_description_is_listed_once(viewer, make_queue, clock):
    make_queue("jobs", max_delivery_count=1)
    enqueue_and_claim("jobs", 1).abandon(error=ValueError("the stock is out"))

    assert text_of(viewer.get(DEAD_LETTERS)).count("the stock is out") == 1


def test_most_recent_dead_letter_is_listed_first(viewer, queue, clock):
    first = dead_letter("jobs")
    clock.advance(1)
    second = dead_letter("jobs")

    assert listed(viewer.get(DEAD_LETTERS)) == [second.pk, first.pk]


@pytest.mark.parametrize("url", [MESSAGES, DEAD_LETTERS])
@pytest.mark.parametrize("lookup", ["lock_token__startswith", "body__contains", "state__in"])
def test_query_string_cannot_probe_hidden_columns(viewer, queue, url, lookup, caplog):
    enqueue_and_claim("jobs", 1)

    assert viewer.get(url, {lookup: "a"}).status_code == 400


def test_query_string_cannot_change_the_order(viewer, queue, django_assert_max_num_queries):
    with django_assert_max_num_queries(10) as queries:
        viewer.get(MESSAGES, {"o": "4.-3"})

    (ids,) = [query["sql"] for query in queries if "mqlite_messages" in query["sql"]]
    assert "ORDER BY id DESC" in ids
