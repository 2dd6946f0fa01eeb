"""The lists of queues, messages and dead letters."""

import html
import re

import pytest
from django.utils import timezone

from django_mqlite.models import Message
from django_mqlite.verbs import find
from tests.support.verbs import (
    claim_one,
    dead_letter,
    deferred,
    enqueue_and_claim,
    overwrite,
    state_of,
)

from .pages import DEAD_LETTERS, LISTS, MESSAGES, confirmation, listed, page_of, text_of

NEXT = re.compile(r'<a href="([^"]*)" rel="next"')


@pytest.mark.parametrize("url", LISTS)
def test_lists_of_an_empty_database_are_empty(viewer, url):
    assert "errornote" not in text_of(viewer.get(url))


@pytest.fixture
def messages(queue, make_queue, clock):
    """Messages of several queues, states and reasons, by name."""
    make_queue("others")
    messages = {
        "order": Message.objects.enqueue(
            "jobs", 1, message_id="order-4711", correlation_id="trace-9", subject="order shipped"
        ),
        "urgent": Message.objects.enqueue("jobs", 2, priority=5),
        "later": Message.objects.enqueue("jobs", 3, delay=5),
        "other": Message.objects.enqueue("others", 4),
    }
    make_queue("dead")
    for name, reason, group in (("stock", "NoStock", "a"), ("card", "NoCard", "b")):
        clock.advance(1)
        messages[name] = enqueue_and_claim("dead", 5, group_id=group)
        messages[name].reject(reason)
    return messages


MESSAGE_LISTS = [
    ("", "card stock other later urgent order"),
    ("queue=jobs&state=active", "urgent order"),
    ("queue=jobs&state=scheduled", "later"),
    ("queue=jobs&state=locked", ""),
    ("queue=nowhere", ""),
    ("state=active", "urgent order other"),
    ("group=a", "stock"),
    *((f"q={term}", "order") for term in ("{id}", "order-4711", "trace-9", "order sh")),
    *((f"q={term}", "") for term in ("9" * 19, "9" * 30, "9" * 5_000, "²", "%25", "'; --", "%00")),
]
DEAD_LETTER_LISTS = [
    ("", "card stock"),
    ("queue=dead&reason=NoStock", "stock"),
    ("reason=NoStock&group=a", "stock"),
    ("reason=NoStock&group=b", ""),
    ("reason=No", ""),
]


ROWS = [
    *((MESSAGES, *row) for row in MESSAGE_LISTS),
    *((DEAD_LETTERS, *row) for row in DEAD_LETTER_LISTS),
]


@pytest.mark.parametrize(("url", "query", "names"), ROWS, ids=range(len(ROWS)))
def test_list_has_matching_messages_in_order(viewer, messages, url, query, names):
    query = query.format(id=messages["order"].pk)

    assert listed(viewer.get(f"{url}?{query}")) == [messages[name].pk for name in names.split()]


@pytest.mark.parametrize("query", ["", "queue=jobs", "state=active", "group=g", "q=same"])
def test_pages_continue_without_counting_rows(viewer, queue, django_assert_max_num_queries, query):
    for number in range(120):
        Message.objects.enqueue("jobs", number, subject="same", group_id="g")

    url, pages, ids = f"{MESSAGES}?{query}", [], []
    with django_assert_max_num_queries(42) as queries:
        while url:
            response = viewer.get(url)
            pages.append(text_of(response))
            ids += listed(response)
            following = NEXT.search(pages[-1])
            url = following and MESSAGES + html.unescape(following[1])

    assert (len(pages), len(ids), len(set(ids))) == (3, 120, 120)
    assert not any("COUNT(" in query["sql"] for query in queries)
    assert ['rel="first"' in page for page in pages] == [False, True, True]
    assert "End of list" in pages[-1]


@pytest.mark.parametrize("place", ["0", "-3", "9" * 25, "x", "1-", "99-1"])
@pytest.mark.parametrize("url", [MESSAGES, DEAD_LETTERS, DEAD_LETTERS + "?reason=x"])
def test_invalid_position_leads_back_to_the_list(viewer, queue, url, place):
    separator = "&" if "?" in url else "?"

    assert viewer.get(f"{url}{separator}p={place}", follow=True).status_code == 200


def test_filter_form_keeps_the_other_filters(viewer, queue):
    page = text_of(viewer.get(f"{MESSAGES}?queue=jobs&q=x&p=0-1"))

    form, _, _ = page[page.index('class="mqlite-text-filter"') :].partition("</form>")
    assert '<input type="hidden" name="queue" value="jobs">' in form
    assert '<input type="hidden" name="q" value="x">' in form
    assert 'name="p"' not in form


def test_lists_read_no_body_and_no_lock_token(viewer, queue, django_assert_max_num_queries):
    enqueue_and_claim("jobs", "secret body")
    dead_letter("jobs")

    with django_assert_max_num_queries(20) as queries:
        viewer.get(MESSAGES)
        viewer.get(DEAD_LETTERS)

    sql = " ".join(query["sql"] for query in queries)
    assert '"mqlite_messages"."subject"' in sql
    assert '"mqlite_messages"."body"' not in sql
    assert '"mqlite_messages"."lock_token"' not in sql


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

    texts = ("NoStock", "article 17 is out", "the last error", "the first error")
    assert [text in page for text in texts] == [True, True, True, False]


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
    filtered = viewer.get(DEAD_LETTERS, {"error_class": "KeyError"})
    assert len(listed(filtered)) == 2
    assert "2 × KeyError" not in text_of(filtered)
    assert listed(viewer.get(DEAD_LETTERS, {"error_class": "Key"})) == []


def test_error_counts_of_an_unknown_queue_are_left_out(viewer, queue):
    enqueue_and_claim("jobs", 1).reject("Broken", error=KeyError("id"))

    assert "× KeyError" not in text_of(viewer.get(DEAD_LETTERS, {"queue": "nope"}))


def test_error_equal_to_the_description_is_listed_once(viewer, make_queue, clock):
    make_queue("jobs", max_delivery_count=1)
    enqueue_and_claim("jobs", 1).abandon(error=ValueError("the stock is out"))

    assert text_of(viewer.get(DEAD_LETTERS)).count("the stock is out") == 1


COLUMNS_BY_STATE = {
    "": ["State", "Subject", "Group id", "Delivery count", "Enqueued"],
    "active": ["Subject", "Group id", "Behind", "Delivery count", "Due"],
    "locked": ["Subject", "Worker", "Held for", "Progress", "Delivery count"],
    "scheduled": ["Subject", "Due", "Last error", "Delivery count"],
    "deferred": ["Subject", "Group id", "Delivery count", "Enqueued"],
    "completed": ["Subject", "Completed", "Result", "Delivery count"],
    "dead_lettered": ["Subject", "Error", "Dead-letter reason", "Delivery count", "Died"],
}
HEADING = re.compile(r'<div class="text"><span>([A-Z][^<]*)</span></div>')


@pytest.fixture
def one_of_each(make_queue, clock):
    """A message of each state, the oldest 10 s old, and one that waits behind another."""
    make_queue("jobs", retain_completed=60)
    message = enqueue_and_claim("jobs", 1)
    message.complete()
    overwrite(Message.objects.filter(pk=message.pk), result={"rows": 7})
    dead_letter("jobs")
    enqueue_and_claim("jobs", 1).abandon(delay=60, error=KeyError("template_id"))
    Message.objects.enqueue("jobs", 1, group_id="a")
    held = claim_one("jobs", worker="host-a:7")
    Message.objects.enqueue("jobs", 2, group_id="a")
    clock.advance(10)
    return held


@pytest.mark.parametrize(("state", "columns"), COLUMNS_BY_STATE.items())
def test_list_has_the_columns_of_its_state(viewer, one_of_each, state, columns):
    deferred("jobs")

    page = text_of(viewer.get(MESSAGES, {"state": state}))
    assert HEADING.findall(page) == ["Id", "Queue", *columns]
    page = text_of(viewer.get(MESSAGES, {"state": state, "queue": "jobs"}))
    assert HEADING.findall(page) == ["Id", *columns]


@pytest.mark.parametrize(
    ("state", "texts"),
    [
        ("", [">blocked<", ">retrying<", ">locked<", ">10 s ago<"]),
        ("active", [">#{head}</a>", ">10 s ago<"]),
        ("locked", [">host-a:7</a>", ">10 s<"]),
        ("scheduled", [">in 50 s<", "KeyError: &#x27;template_id&#x27;"]),
        ("completed", [">10 s ago<", "{{ &quot;rows&quot;: 7 }}"]),
        ("dead_lettered", ["Broken", ">10 s ago<"]),
    ],
)
def test_list_shows_what_matters_in_its_state(viewer, one_of_each, state, texts):
    page = text_of(viewer.get(MESSAGES, {"state": state}))

    assert [t for t in texts if t.format(head=one_of_each.pk) not in page] == []


@pytest.fixture
def of_three_times(queue, clock):
    """A message and a dead letter of each of three hours, the last hour last."""
    messages = []
    for _ in range(3):
        messages.append((Message.objects.enqueue("jobs", 1, priority=-1), dead_letter("jobs")))
        clock.advance(3600)
    return messages


@pytest.mark.parametrize(
    ("query", "hours"),
    [
        ({"since": "1h"}, {2}),
        ({"since": "2h"}, {1, 2}),
        ({"until": "2h"}, {0}),
        ({"since": "3h", "until": "1h"}, {0, 1}),
        ({"since": "3h", "until": "1h", "queue": "jobs"}, {0, 1}),
    ],
)
@pytest.mark.parametrize("place", [0, 1])
def test_list_is_filtered_by_time(viewer, of_three_times, query, hours, place):
    url = (MESSAGES, DEAD_LETTERS)[place]
    states = {"state": "active"} if place == 0 else {}

    ids = listed(viewer.get(url, query | states))

    assert set(ids) == {of_three_times[hour][place].pk for hour in hours}


def test_local_time_of_a_filter_is_in_the_current_time_zone(viewer, queue, clock, settings):
    settings.TIME_ZONE = "Europe/Berlin"
    first = Message.objects.enqueue("jobs", 1)
    clock.advance(60)
    second = Message.objects.enqueue("jobs", 1)
    local = timezone.localtime(clock.now).strftime("%Y-%m-%dT%H:%M")

    assert listed(viewer.get(MESSAGES, {"since": local})) == [second.pk]
    assert listed(viewer.get(MESSAGES, {"until": local})) == [first.pk]


@pytest.mark.parametrize("url", [MESSAGES, DEAD_LETTERS])
@pytest.mark.parametrize(
    "value", ["yesterday", "5w", "9" * 30, "2024-13-01T00:00", "0001-01-01T00:00"]
)
def test_invalid_time_leads_back_to_the_list(viewer, queue, url, value):
    assert viewer.get(url, {"since": value}, follow=True).status_code == 200


def test_actions_on_all_matching_keep_to_the_time(operator, of_three_times):
    url = f"{MESSAGES}?state=active&since=1h"
    fields = {"action": "discard", "select_across": "1", "_selected_action": "0"}

    assert "Discard 1 message?" in text_of(operator.post(url, fields))


def test_list_is_filtered_by_worker(viewer, queue):
    first = enqueue_and_claim("jobs", 1)
    overwrite(Message.objects.filter(pk=first.pk), locked_by="host-a:7")
    enqueue_and_claim("jobs", 1)

    page = text_of(viewer.get(page_of(first)))

    url = f"{MESSAGES}?state=locked&amp;worker=host-a%3A7"
    assert url in page
    assert listed(viewer.get(html.unescape(url))) == [first.pk]


def test_text_is_found_in_bodies_and_errors(viewer, queue):
    body = Message.objects.enqueue("jobs", {"to": "ada@example.com"}, priority=-1)
    letter = enqueue_and_claim("jobs", 1)
    letter.reject("Refused", error=ValueError("ada@example.com"))
    Message.objects.enqueue("jobs", 1)

    assert listed(viewer.get(MESSAGES, {"contains": "ada@"})) == [letter.pk, body.pk]
    assert listed(viewer.get(MESSAGES, {"contains": "ada@", "state": "active"})) == [body.pk]
    assert listed(viewer.get(DEAD_LETTERS, {"contains": "ada@"})) == [letter.pk]
    query = {"contains": "ada@", "error_class": "ValueError", "since": "1h"}
    assert listed(viewer.get(DEAD_LETTERS, query)) == [letter.pk]
    assert listed(viewer.get(DEAD_LETTERS, query | {"error_class": "KeyError"})) == []


def test_search_in_contents_says_where_it_stopped(viewer, queue, monkeypatch):
    monkeypatch.setattr(find, "MAX_SEARCHED", 100)
    rare = Message.objects.enqueue("jobs", "rare")
    Message.objects.enqueue_many("jobs", [1] * 150)

    page = text_of(viewer.get(MESSAGES, {"contains": "rare"}))
    assert "The search stopped after 100 messages." in page
    (url,) = re.findall(r'<a href="([^"]*)">Continue the search', page)

    assert listed(viewer.get(MESSAGES + html.unescape(url))) == [rare.pk]


@pytest.mark.parametrize("url", [MESSAGES, DEAD_LETTERS])
def test_contents_are_searched_only_by_users_who_may_see_them(
    make_staff, viewer, queue, url, settings, caplog
):
    dead_letter("jobs", "secret")
    blind = make_staff("view_message", "view_deadletter")

    assert 'name="contains"' not in text_of(blind.get(url))
    assert blind.get(url, {"contains": "secret"}).status_code == 400
    settings.MQLITE = {"ADMIN_BODY": "tests.integration.admin.masking.mask"}
    assert viewer.get(url, {"contains": "secret"}).status_code == 400


def test_search_in_contents_offers_no_action_on_all_that_match(operator, queue):
    """Such an action would ignore the text."""
    letter = dead_letter("jobs", "secret")
    url = f"{DEAD_LETTERS}?contains=secret"
    fields = {"action": "purge", "select_across": "1", "_selected_action": "0"}

    assert "all matching …" not in text_of(operator.get(url))
    operator.post(url, fields | confirmation(1))

    assert state_of(letter) == "dead_lettered"


def test_empty_list_names_what_was_looked_for(viewer, queue):
    query = {"queue": "jobs", "state": "dead_lettered", "group": "<a>", "q": "order"}

    page = text_of(viewer.get(MESSAGES, query))

    for text in ("Queue: <strong>jobs", "State: <strong>dead-lettered", "Group: <strong>&lt;a&gt;"):
        assert text in page
    assert "Search: <strong>order" in page
    assert "There is nothing in this list." in text_of(viewer.get(MESSAGES))


@pytest.mark.parametrize("url", [MESSAGES, DEAD_LETTERS])
def test_search_for_a_deleted_message_says_what_why_says(viewer, queue, url):
    message = enqueue_and_claim("jobs", 1)
    message.complete()

    page = text_of(viewer.get(url, {"q": message.pk}))

    assert f"#{message.pk}: {Message.objects.explain(message.pk).text}" in page


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
