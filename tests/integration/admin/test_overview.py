"""The overview: every queue at a glance, every worker that is alive."""

import re
from dataclasses import replace

import pytest
from django.urls import reverse

from django_mqlite import timing as clocks
from django_mqlite.models import Message, Queue
from django_mqlite.types import WorkerRecord
from django_mqlite.verbs.workers import register
from tests.support.verbs import dead_letter, enqueue_and_claim

from .conftest import VIEW
from .pages import QUEUES, read_only, text_of

PART = reverse("admin:django_mqlite_queue_overview")
EVIL = "<script>alert(1)</script>"


def worker(name="host-a:4711", queues=("jobs",), **facts) -> WorkerRecord:
    now = clocks.now_ms()
    record = WorkerRecord(
        worker=name,
        host="host-a",
        boot_id="boot",
        pid_namespace=1,
        pid=4711,
        process_started_at=0.0,
        queues=queues,
        slots=4,
        in_flight=2,
        started_at=now,
    )
    return replace(record, **facts)


def cells(page: str, name: str) -> list[str]:
    """The text of the cells in the row of that name."""
    found = re.search(rf'<th scope="row">(?:<a [^>]*>)?{name}.*?</tr>', page, flags=re.DOTALL)
    assert found
    row = re.findall(r"<td[^>]*>(.*?)</td>", found[0], flags=re.DOTALL)
    return [" ".join(re.sub(r"<[^>]*>", " ", cell).split()) for cell in row]


@pytest.mark.parametrize("url", [QUEUES, PART])
def test_each_queue_is_shown_with_its_depth_by_state(viewer, queue, url):
    Message.objects.enqueue("jobs", 1, delay=60)
    Message.objects.enqueue("jobs", 2, delay=60)
    dead_letter("jobs")
    enqueue_and_claim("jobs", 1)

    page = text_of(viewer.get(url))

    assert cells(page, "jobs")[1:7] == ["0", "1", "2", "0", "1", "0"]
    assert 'href="/admin/django_mqlite/message/?queue=jobs&amp;state=scheduled">2</a>' in page


def test_how_long_the_oldest_has_been_due_is_shown(viewer, queue, clock):
    Message.objects.enqueue("jobs", 1)
    clock.advance(125)

    assert cells(text_of(viewer.get(QUEUES)), "jobs")[7] == "2 min 5 s"


def test_the_last_hour_is_drawn_and_said_in_words(viewer, queue, clock):
    minute = clocks.now_ms() // 60_000
    register("default", worker(settled={"jobs": [[minute, 12, 3], [minute - 1, 4, 0]]}))

    page = text_of(viewer.get(QUEUES))

    assert "<title>16 completed, 3 failed, at most 15 in a minute</title>" in page
    assert "16 done, 3 failed" in cells(page, "jobs")[8]
    assert len(re.search(r'class="done" d="([^"]*)"', page)[1].split("z")) == 3
    assert len(re.search(r'class="failed" d="([^"]*)"', page)[1].split("z")) == 2


def test_what_is_kept_is_said(viewer, make_queue, settings, clock):
    settings.MQLITE = {"DLQ_MAX_COUNT": 1000}
    make_queue("jobs", retain_completed=3600, dlq_max_age=60, dlq_max_bytes=2048)

    assert cells(text_of(viewer.get(QUEUES)), "jobs")[9] == (
        "completed: 1 h dead letters: 1 min dead letters: at most 1000 "
        "dead letters: at most 2.0\xa0KB".replace("\xa0", " ")
    )


def test_live_workers_are_shown_and_silent_ones_are_not(viewer, queue, clock):
    register("default", worker("host-b:1"))
    clock.advance(61)
    register("default", worker())
    clock.advance(5)

    page = text_of(viewer.get(QUEUES))

    assert cells(page, "host-a:4711") == ["host-a", "jobs", "4", "2", "5 s ago"]
    assert "host-b:1" not in page


def test_a_queue_says_whether_it_is_paused_or_nobody_serves_it(viewer, queue, make_queue):
    make_queue("served")
    make_queue("paused").pause()
    register("default", worker(queues=("served",)))

    page = text_of(viewer.get(QUEUES))

    assert [cells(page, name)[0] for name in ("served", "paused", "jobs")] == [
        "open",
        "paused",
        "no live worker",
    ]


def test_an_empty_database_says_what_to_do(viewer, db):
    page = text_of(viewer.get(QUEUES))

    assert "declare one in" in page
    assert "start one with manage.py runworker" in page


def test_nothing_of_a_worker_can_become_markup(viewer, queue):
    register("default", worker(EVIL, queues=(EVIL, "jobs"), host=EVIL))

    page = text_of(viewer.get(QUEUES))

    assert EVIL not in page
    assert "&lt;script&gt;" in page


def test_only_who_may_pause_is_offered_it(viewer, operator, queue):
    assert 'value="pause"' in text_of(operator.get(QUEUES))
    assert 'value="pause"' not in text_of(viewer.get(QUEUES))


def test_who_may_not_see_messages_gets_no_links_to_them(make_staff, queue):
    dead_letter("jobs")

    page = text_of(make_staff("view_queue").get(QUEUES))

    assert cells(page, "jobs")[5] == "1"
    assert "/message/" not in page


def test_the_part_that_is_fetched_takes_the_same_permission(make_staff, queue, client, caplog):
    assert make_staff("pause_queue", "change_queue").get(PART).status_code == 403
    assert client.get(PART).status_code == 302


def test_the_overview_takes_at_most_ten_queries(
    operator, queue, make_queue, django_assert_max_num_queries
):
    for number in range(20):
        make_queue(f"queue-{number}")

    with django_assert_max_num_queries(10):
        operator.get(QUEUES)


def test_a_get_with_the_words_of_a_button_pauses_nothing(operator, queue):
    with read_only():
        operator.get(QUEUES, {"action": "pause", "_selected_action": "jobs", "index": 0})
        operator.get(PART, {"action": "pause", "_selected_action": "jobs", "index": 0})

    assert not Queue.objects.get().paused


def test_no_page_of_ours_has_a_script_or_style_of_its_own(make_staff, queue):
    client = make_staff(*VIEW, "pause_queue")

    page = text_of(client.get(QUEUES))

    assert re.findall(r"<script(?![^>]* src=)|<style| style=| on\w+=", page) == []
