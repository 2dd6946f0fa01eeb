"""The overview of queues and live workers."""

import re
from dataclasses import replace

import pytest
from django.contrib.admin.models import CHANGE, LogEntry
from django.urls import reverse

from django_mqlite import timing
from django_mqlite.models import Message, Queue
from django_mqlite.types import WorkerRecord
from django_mqlite.verbs.workers import register
from tests.support.verbs import dead_letter, enqueue_and_claim, tallies

from .pages import QUEUES, act, text_after, text_of

PART = reverse("admin:django_mqlite_queue_overview")
EVIL = "<script>alert(1)</script>"


def worker(name="host-a:4711", queues=("jobs",), **facts) -> WorkerRecord:
    record = WorkerRecord(
        worker=name, host="host-a", boot_id="boot", pid_namespace=1, pid=4711, queues=queues,
        process_started_at=0.0, slots=4, in_flight=2, started_at=timing.now_ms(),
    )  # fmt: skip
    return replace(record, **facts)


def cells(page: str, name: str) -> list[str]:
    """Return the texts of the cells in the row with the name."""
    (row,) = re.findall(rf'<th scope="row">(?:<a [^>]*>)?{name}.*?</tr>', page, flags=re.DOTALL)
    cells = re.findall(r"<td[^>]*>(.*?)</td>", row, flags=re.DOTALL)
    return [" ".join(re.sub(r"<[^>]*>", " ", cell).split()) for cell in cells]


@pytest.mark.parametrize("url", [QUEUES, PART])
def test_queue_is_shown_with_counts_by_state(viewer, queue, url):
    Message.objects.enqueue("jobs", 1, delay=60)
    Message.objects.enqueue("jobs", 2, delay=60)
    dead_letter("jobs")
    enqueue_and_claim("jobs", 1)

    page = text_of(viewer.get(url))

    assert cells(page, "jobs")[1:7] == ["0", "1", "2", "0", "1", "0"]
    for state, count in (("scheduled", 2), ("dead_lettered", 1)):
        assert f'/message/?queue=jobs&amp;state={state}">{count}</a>' in page


def test_age_of_the_oldest_due_message_is_shown(viewer, queue, clock):
    Message.objects.enqueue("jobs", 1)
    clock.advance(125)

    assert cells(text_of(viewer.get(QUEUES)), "jobs")[7] == "2 min 5 s"


def test_last_hour_is_a_chart_with_a_text(viewer, queue, clock):
    minute = timing.now_ms() // 60_000
    register("default", worker(deliveries=tallies("jobs", (minute, 12, 3), (minute - 1, 4, 0))))

    page = text_of(viewer.get(QUEUES))

    assert "<title>16 completed, 3 failed, at most 15 in a minute</title>" in page
    assert "16 completed, 3 failed" in cells(page, "jobs")[8]
    assert len(re.search(r'class="done" d="([^"]*)"', page)[1].split("z")) == 3
    assert len(re.search(r'class="failed" d="([^"]*)"', page)[1].split("z")) == 2


def test_retention_is_shown(viewer, make_queue, settings, clock):
    settings.MQLITE = {"DLQ_MAX_COUNT": 1000}
    make_queue("jobs", retain_completed=3600, dlq_max_age=60, dlq_max_bytes=2048)

    assert cells(text_of(viewer.get(QUEUES)), "jobs")[9] == (
        "completed: 1 h dead letters: 1 min dead letters: at most 1000 "
        "dead letters: at most 2.0\xa0KB".replace("\xa0", " ")
    )


def test_only_live_workers_are_shown(viewer, queue, clock):
    register("default", worker("host-b:1"))
    clock.advance(61)
    register("default", worker())
    clock.advance(5)

    page = text_of(viewer.get(QUEUES))

    assert cells(page, "host-a:4711") == ["host-a", "jobs", "4", "2", "5 s ago"]
    assert "host-b:1" not in page


def test_queue_status_is_running_paused_or_no_worker(viewer, queue, make_queue):
    make_queue("served")
    make_queue("paused").pause()
    register("default", worker(queues=("served",)))

    page = text_of(viewer.get(QUEUES))

    statuses = [cells(page, name)[0] for name in ("served", "paused", "jobs")]
    assert statuses == ["running", "paused", "no worker"]


def test_empty_overview_explains_what_to_do(viewer, db):
    page = text_of(viewer.get(QUEUES))

    assert "declare one in" in page
    assert "start one with manage.py runworker" in page


def test_worker_texts_are_escaped(viewer, queue):
    register("default", worker(EVIL, queues=(EVIL, "jobs"), host=EVIL))

    page = text_of(viewer.get(QUEUES))

    assert EVIL not in page
    assert "&lt;script&gt;" in page


def test_counts_link_to_messages_only_with_permission(make_staff, queue):
    dead_letter("jobs")

    page = text_of(make_staff("view_queue").get(QUEUES))

    assert cells(page, "jobs")[5] == "1"
    assert "/message/" not in page


def test_overview_tables_require_the_view_permission(make_staff, queue, client, caplog):
    assert make_staff("pause_queue", "change_queue").get(PART).status_code == 403
    assert client.get(PART).status_code == 302


def test_overview_needs_at_most_ten_queries(
    operator, queue, make_queue, django_assert_max_num_queries
):
    for number in range(20):
        make_queue(f"queue-{number}")

    with django_assert_max_num_queries(10):
        operator.get(QUEUES)


@pytest.mark.parametrize(("action", "paused"), [("pause", True), ("resume", False)])
def test_pause_and_resume_log_only_changed_queues(operator, queue, make_queue, action, paused):
    other = make_queue("others")
    Queue.objects.set_paused(queue, paused)
    Queue.objects.set_paused(other, not paused)

    act(operator, QUEUES, action, queue, other)

    assert set(Queue.objects.values_list("paused", flat=True)) == {paused}
    (entry,) = LogEntry.objects.all()
    assert (entry.object_id, entry.action_flag) == ("others", CHANGE)
    assert f"1 queue {action}d." in text_after(operator)


def test_overview_has_no_inline_script_or_style(operator, queue):
    page = text_of(operator.get(QUEUES))

    assert re.findall(r"<script(?![^>]* src=)|<style| style=| on\w+=", page) == []
