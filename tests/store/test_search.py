"""Search in the contents of messages, and select them by the time of their enqueueing."""

from datetime import timedelta

import pytest

from django_mqlite.models import Message
from django_mqlite.verbs import find
from tests.support.verbs import dead_letter, enqueue_and_claim

pytestmark = pytest.mark.django_db


def found(**criteria):
    return list(Message.objects.find(**criteria).ids)


def pages(**criteria):
    """Return the pages of a search up to its end."""
    result, position = [], None
    while True:
        page = Message.objects.find(after=position, **criteria)
        result.append(page)
        position = page.next
        if position is None:
            return result


def test_text_is_found_in_bodies_errors_and_descriptions(queue):
    json = Message.objects.enqueue("jobs", {"name": "Grüße"})
    text = Message.objects.enqueue("jobs", "viele Grüße")
    failed = enqueue_and_claim("jobs", 1, priority=9)
    failed.abandon(delay=60, error=ValueError('no "Grüße"'))
    Message.objects.enqueue("jobs", "grüße")
    dead = enqueue_and_claim("jobs", 1, priority=9)
    dead.reject("Refused", "mit Grüße")

    assert found(containing="Grüße") == [dead.pk, failed.pk, text.pk, json.pk]
    assert found(containing='no "Grüße"') == [failed.pk]
    assert found(containing="Grüße", state="scheduled") == [failed.pk]
    assert found(containing="nothing") == []


def test_pages_of_a_search_continue_without_a_gap(queue):
    ids = [Message.objects.enqueue("jobs", f"{n % 3} of three").pk for n in range(500)]
    expected = [id for n, id in enumerate(ids) if n % 3 == 0]

    for criteria in ({}, {"queue": "jobs"}):
        result = pages(containing="0 of", limit=40, **criteria)
        listed = [id for page in result for id in page.ids]
        assert sorted(listed) == expected
        assert len(listed) == len(set(listed))
        assert all(len(page.ids) == 40 for page in result[:-1])
        assert {page.searched for page in result} == {None}


def test_search_stops_after_a_number_of_messages(queue, monkeypatch):
    monkeypatch.setattr(find, "MAX_SEARCHED", 250)
    rare = Message.objects.enqueue("jobs", "rare")
    Message.objects.enqueue_many("jobs", ["other"] * 600)

    result = pages(containing="rare")

    assert [page.searched for page in result] == [250, 250, None]
    assert [list(page.ids) for page in result] == [[], [], [rare.pk]]


def test_search_stops_after_a_number_of_bytes(queue, monkeypatch):
    monkeypatch.setattr(find, "MAX_SEARCHED_BYTES", 100_000)
    Message.objects.enqueue_many("jobs", ["x" * 1_000] * 300)

    assert [page.searched for page in pages(containing="rare")] == [100, 100, None]


def test_list_is_restricted_to_the_rows_of_a_query_set(queue, make_queue):
    make_queue("others")
    own = [Message.objects.enqueue("jobs", 1).pk for _ in range(3)]
    for _ in range(200):
        Message.objects.enqueue("others", 1)

    among = Message.objects.filter(queue="jobs")

    assert found(among=among) == own[::-1]
    assert found(among=among, queue="others") == []
    assert found(among=among.filter(pk=own[0]), containing="1") == [own[0]]


def test_messages_are_selected_by_the_time_of_their_enqueueing(queue, make_queue, clock):
    make_queue("others")
    began, ids = clock.now, []
    for _ in range(6):
        ids.append(Message.objects.enqueue("jobs", 1, group_id="a", subject="s").pk)
        clock.advance(60)
    Message.objects.get(pk=ids[2]).delete()
    since, until = began + timedelta(minutes=1), began + timedelta(minutes=4)
    expected = [ids[1], ids[3]]

    for criteria in ({}, {"queue": "jobs"}, {"state": "active"}, {"group": "a"}, {"text": "s"}):
        assert sorted(found(since=since, until=until, **criteria)) == expected, criteria
    assert found(since=clock.now) == []
    assert found(until=began) == []
    assert sorted(found(until=since)) == [ids[0]]


def test_dead_letters_are_selected_by_the_time_of_their_enqueueing(queue, clock):
    dead_letter("jobs")
    clock.advance(60)
    later = dead_letter("jobs")

    for criteria in ({}, {"queue": "jobs"}):
        assert found(state="dead_lettered", since=clock.now, **criteria) == [later.pk]


def test_empty_table_has_no_message_of_any_time(queue, clock):
    assert found(since=clock.now - timedelta(days=1), until=clock.now) == []


@pytest.mark.parametrize("name", ["since", "until"])
@pytest.mark.parametrize("value", [5, "today"])
def test_time_that_is_not_a_datetime_is_refused_by_name(queue, name, value):
    with pytest.raises(TypeError, match=name):
        Message.objects.find(**{name: value})
