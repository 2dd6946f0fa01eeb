"""The overview of queues and live workers."""

import gzip
import random
import re

import pytest
from django.contrib.admin.models import CHANGE, LogEntry
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from django_mqlite import recurring, timing
from django_mqlite.models import Message, Queue, Schedule
from django_mqlite.verbs import health as health_verb
from django_mqlite.verbs.health import LARGE_WAL
from django_mqlite.verbs.tallies import Tally
from django_mqlite.verbs.workers import register
from django_mqlite.worker.dispatcher import Dispatcher
from tests.support.verbs import claim_one, dead_letter, enqueue_and_claim, record, tallies

from .pages import QUEUES, text_after, text_of

PART = reverse("admin:django_mqlite_queue_overview")
JOBS = reverse("admin:django_mqlite_queue_change", args=["jobs"])
EVIL = "<script>alert(1)</script>"
ACTIVE, LOCKED, SCHEDULED, DEFERRED, DEAD, COMPLETED, TIMES, CHART = range(8)


def texts(html: str) -> str:
    return " ".join(re.sub(r"<[^>]*>", " ", html).split())


def row(page: str, name: str) -> str:
    """Return the row of a queue or a worker."""
    rows = re.findall(r"<tr>.*?</tr>", page, flags=re.DOTALL)
    (found,) = (row for row in rows if re.search(rf'scope="row">(<a [^>]*>)?{name}<', row))
    return found


def cells(page: str, name: str) -> list[str]:
    """Return the texts of the cells in the row with the name."""
    return list(map(texts, re.findall(r"<td[^>]*>(.*?)</td>", row(page, name), flags=re.DOTALL)))


def status(page: str, name: str) -> tuple[str, str]:
    """Return the CSS class and the text of a queue's status."""
    level, text = re.search(
        r'<small class="(\w*)"[^>]*>(.*?)</small></th>', row(page, name)
    ).groups()
    return level, texts(text)


def facts(page: str) -> list[str]:
    """Return the facts of the status line, each with its CSS class."""
    line = re.search(r'<p class="mqlite-status ?(\w*)">(.*?)</p>', page, flags=re.DOTALL)
    parts = re.findall(r'<span(?: class="(\w+)")?>(.*?)</span>', line[2])
    assert line[1] == parts[0][0]
    return [" ".join(filter(None, part)) for part in parts]


@pytest.mark.parametrize("url", [QUEUES, PART])
def test_queue_is_shown_with_counts_by_state(viewer, queue, url):
    Message.objects.enqueue_many("jobs", [b"x"] * 1_234, delay=60)
    dead_letter("jobs")
    enqueue_and_claim("jobs", 1)

    page = text_of(viewer.get(url))

    assert cells(page, "jobs")[: COMPLETED + 1] == [
        "0", "1", "1,234", "0", "1 1 last hour", "0",
    ]  # fmt: skip
    for state, count in (("scheduled", "1,234"), ("dead_lettered", "1")):
        assert f'/message/?queue=jobs&amp;state={state}">{count}</a>' in page


# What is wrong


def test_nothing_is_wrong_while_no_message_is_due(viewer, queue):
    Message.objects.enqueue("jobs", 1, delay=60)

    page = text_of(viewer.get(QUEUES))

    assert facts(page) == ["Nothing is wrong: no due message waits for long."]
    assert status(page, "jobs") == ("quiet", "no worker")


def test_due_queue_without_a_worker_is_an_alarm(viewer, queue, make_queue, clock):
    make_queue("idle")
    Message.objects.enqueue("jobs", 1)
    assert status(text_of(viewer.get(QUEUES)), "jobs") == ("warn", "no worker")
    clock.advance(125)

    page = text_of(viewer.get(QUEUES))

    assert facts(page) == ["alarm 1 queue is due and nobody serves it"]
    assert status(page, "jobs") == ("alarm", "no worker")
    assert 'class="alarm">for 2 min</small>' in page
    assert status(page, "idle") == ("quiet", "no worker")


def test_retries_and_recent_dead_letters_are_in_the_status_line(viewer, queue, clock):
    register("default", record())
    dead_letter("jobs")
    for _ in range(2):
        enqueue_and_claim("jobs").abandon(delay=60)

    page = text_of(viewer.get(QUEUES))

    assert facts(page) == ["alarm 1 dead letter in the last hour", "warn 2 messages are retrying"]
    assert status(page, "jobs") == ("", "running")
    assert 'class="warn">2 retrying</small>' in page
    assert 'class="alarm">1 last hour</small>' in page


def test_fifo_queue_stuck_behind_its_head_is_an_alarm(viewer, strict_queue, clock):
    register("default", record(queues=("strict",)))
    head, *_others = (Message.objects.enqueue("strict", n) for n in range(70))
    claim_one("strict").abandon(delay=3_600)
    clock.advance(61)
    register("default", record(queues=("strict",)))

    page = text_of(viewer.get(QUEUES))

    assert facts(page) == [
        "alarm 1 queue is stuck behind a message", "warn 1 message is retrying",
    ]  # fmt: skip
    assert status(page, "strict") == (
        "alarm", f"stuck · 69 behind #{head.pk} (scheduled, in 58 min 59 s)",
    )  # fmt: skip
    assert f'/message/{head.pk}/change/">#{head.pk}</a>' in page


def test_queue_that_is_handled_in_order_is_no_alarm(viewer, strict_queue, clock):
    register("default", record(queues=("strict",)))
    head, *_others = (Message.objects.enqueue("strict", n) for n in range(3))
    claim_one("strict", worker="w1")

    page = text_of(viewer.get(QUEUES))

    assert status(page, "strict") == ("", f"running · 2 behind #{head.pk} (locked)")
    assert cells(page, "strict")[LOCKED] == "1 1/4 slots"


def test_queue_without_a_free_slot_is_shown(viewer, queue, clock):
    register("default", record(slots=2))
    for _ in range(3):
        Message.objects.enqueue("jobs", 1)
    Message.objects.claim("jobs", limit=2, worker="w1", lock_duration=600)

    page = text_of(viewer.get(QUEUES))
    assert facts(page) == ["warn 1 queue waits for a free slot"]
    assert status(page, "jobs") == ("warn", "all slots busy")
    assert cells(page, "jobs")[LOCKED] == "2 2/2 slots"

    clock.advance(61)
    register("default", record(slots=2))
    page = text_of(viewer.get(QUEUES))
    assert facts(page) == ["alarm 1 queue is late", "warn 1 queue waits for a free slot"]
    assert status(page, "jobs") == ("alarm", "all slots busy")


def test_queue_at_its_limits_is_shown(viewer, make_queue, clock):
    make_queue("jobs", max_in_flight=1, rate="100/min")
    register("default", record())
    for _ in range(2):
        Message.objects.enqueue("jobs", 1)
    claim_one("jobs", worker="w1")

    page = text_of(viewer.get(QUEUES))

    level, text = status(page, "jobs")
    assert level == "warn"
    assert text.startswith("at its limit · 1 of 1 in flight · 100/min, ")


def test_late_queue_is_an_alarm(viewer, queue, clock):
    Message.objects.enqueue("jobs", 1)
    clock.advance(61)
    register("default", record())

    page = text_of(viewer.get(QUEUES))

    assert facts(page) == ["alarm 1 queue is late"]
    assert status(page, "jobs") == ("alarm", "late")


def test_paused_queue_is_shown_and_no_alarm(viewer, queue, clock):
    Message.objects.enqueue("jobs", 1)
    queue.pause()
    clock.advance(3_600)

    page = text_of(viewer.get(QUEUES))

    assert facts(page) == ["warn 1 queue is paused"]
    assert status(page, "jobs") == ("warn", "paused")


def test_large_write_ahead_log_is_an_alarm(viewer, queue, monkeypatch):
    monkeypatch.setattr(health_verb, "wal_bytes", lambda using: LARGE_WAL + 1)

    assert facts(text_of(viewer.get(QUEUES))) == ["alarm the write-ahead log has 128.0\xa0MB"]


def test_schedules_that_are_overdue_failing_or_paused_are_shown(
    viewer, queue, settings, monkeypatch, clock
):
    monkeypatch.setattr(recurring, "_declared", {})
    every = {"every": 60, "queue": "jobs"}
    settings.MQLITE = {"SCHEDULES": {"a": every, "b": every, "c": {**every, "queue": "missing"}}}
    dispatcher = Dispatcher.of_project("default")
    dispatcher.poll()
    Schedule.objects.pause("b")
    clock.advance(60)
    dispatcher.poll()
    Message.objects.all().delete()
    clock.advance(80)

    assert facts(text_of(viewer.get(QUEUES))) == [
        "alarm 1 schedule is overdue",
        "alarm 1 schedule cannot enqueue its message",
        "warn 1 schedule is paused",
    ]


# Figures of a queue


def test_median_times_and_the_last_hour_are_shown(viewer, queue, clock):
    tally = Tally()
    for _ in range(3):
        tally.add("jobs", "completed", waited_ms=100, ran_ms=5_000, now=clock.ms)
    tally.add("jobs", "active", waited_ms=100, ran_ms=5_000, now=clock.ms - 60_000)
    register("default", record(), tally.recent(now=clock.ms))

    page = text_of(viewer.get(QUEUES))

    assert cells(page, "jobs")[TIMES] == "wait 99 ms run 5.31 s"
    assert "3, 1 failed" in cells(page, "jobs")[CHART]
    assert "<title>3 completed, 1 failed</title>" in page


def test_page_of_a_queue_has_its_figures_chart_and_times(viewer, queue, clock, settings):
    settings.TIME_ZONE = "UTC"
    minute = clock.ms // 60_000
    counts = tallies("jobs", (minute, 12, 3), (minute - 1, 4, 0))
    tally = Tally()
    tally.add("jobs", "completed", waited_ms=100, ran_ms=5_000, now=clock.ms - 7_200_000)
    for waited_ms in [10] * 18 + [60_000] * 2:
        tally.add("jobs", "completed", waited_ms=waited_ms, ran_ms=5_000, now=clock.ms)
    register("default", record("w2"), {**tally.recent(now=clock.ms), **counts})
    dead_letter("jobs")

    page = text_of(viewer.get(JOBS))
    day = text_of(viewer.get(JOBS, {"chart": "day"}))

    assert "Deliveries per minute: 16 completed, 3 failed" in page
    assert "<title>00:00: 12 completed, 3 failed</title>" in page
    assert ">20</text>" in page
    assert ">23:30</text>" in page
    assert "Deliveries per half-hour: 21 completed, 0 failed" in day
    assert "<title>22:00: 1 completed, 0 failed</title>" in day
    assert ">21:00</text>" in day
    assert [texts(row(page, name)) for name in ("Wait time", "Run time")] == [
        "Wait time 10 ms 1 min",
        "Run time 5.31 s 5.31 s",
    ]
    assert 'class="alarm">1 last hour</small>' in page


def test_page_of_a_queue_without_deliveries_is_shown(viewer, queue):
    page = text_of(viewer.get(JOBS))

    assert "Deliveries per minute: 0 completed, 0 failed" in page
    assert "95th percentile" not in page


def test_counts_link_to_messages_only_with_permission(make_staff, strict_queue, clock):
    dead_letter("strict")
    for n in range(2):
        Message.objects.enqueue("strict", n)

    page = text_of(make_staff("view_queue").get(QUEUES))

    assert cells(page, "strict")[DEAD] == "1 1 last hour"
    assert "behind #" in page
    assert "/message/" not in page


# Workers


def test_only_live_workers_are_shown(viewer, queue, clock):
    register("default", record("host-b:1"))
    clock.advance(61)
    queues = ("jobs", "a", "b", "c", "d", "e")
    register("default", record("host-a:4711", queues=queues, slots=4, in_flight=2))
    clock.advance(5)

    page = text_of(viewer.get(QUEUES))

    assert cells(page, "host-a:4711") == ["host", "jobs, a, b, c, 2 more", "4", "2", "5 s ago"]
    assert "host-b:1" not in page


def test_empty_overview_explains_what_to_do(viewer, db):
    page = text_of(viewer.get(QUEUES))

    assert "declare one in" in page
    assert "start one with manage.py runworker" in page


def test_worker_texts_are_escaped(viewer, queue):
    register("default", record(EVIL, queues=(EVIL, "jobs"), host=EVIL))

    page = text_of(viewer.get(QUEUES))

    assert EVIL not in page
    assert "&lt;script&gt;" in page


# Filters, permissions and cost


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("", ["emails", "jobs", "mail-in", "mail-out"]),
        ("?q=MAIL", ["emails", "mail-in", "mail-out"]),
        ("?problems=1", ["jobs", "mail-out"]),
        ("?q=mail&problems=1", ["mail-out"]),
        ("?q=nothing", []),
    ],
)
@pytest.mark.parametrize("url", [QUEUES, PART])
def test_queues_are_filtered_by_name_and_problems(viewer, make_queue, clock, url, query, names):
    for name in ("emails", "jobs", "mail-in", "mail-out"):
        make_queue(name)
    dead_letter("jobs")
    enqueue_and_claim("mail-out").abandon(delay=60)

    page = text_of(viewer.get(url + query))

    assert re.findall(r'<th scope="row"><a [^>]*>([^<]*)</a>', page) == names
    assert ("No queue matches the filter." in page) == (not names)
    assert len(facts(page)) == 2


def test_refreshed_part_keeps_the_filter(viewer, queue):
    page = text_of(viewer.get(QUEUES, {"q": "a&b", "problems": "1"}))

    assert f'data-mqlite-refresh="{PART}?q=a%26b&amp;problems=1"' in page
    assert 'name="q" value="a&amp;b"' in page
    assert 'value="1" checked' in page


def test_overview_tables_require_the_view_permission(make_staff, queue, client, caplog):
    assert make_staff("pause_queue", "change_queue").get(PART).status_code == 403
    assert client.get(PART).status_code == 302


def test_overview_needs_as_many_queries_for_any_number_of_queues(operator, queue, make_queue):
    counts = []
    for turn in range(2):
        with CaptureQueriesContext(connection) as captured:
            operator.get(QUEUES)
        counts.append(len(captured))
        for number in range(20):
            make_queue(f"queue-{turn}-{number}", ordering_mode="strict_fifo")
            Message.objects.enqueue(f"queue-{turn}-{number}", 1)

    assert counts[0] == counts[1] <= 10


def test_refresh_of_two_hundred_busy_queues_takes_less_than_50_kib(operator, make_queue, clock):
    chance, tally = random.Random(0), Tally()
    words = (["orders", "emails", "billing", "search"], ["incoming", "retry", "high", "low"])
    names = ["-".join((*map(chance.choice, words), str(n))) for n in range(200)]
    for name in names:
        make_queue(name)
        Message.objects.enqueue_many(name, [b"x"] * chance.randrange(1, 6))
        claim_one(name).abandon(delay=60)
        for ago in range(60):
            for _ in range(chance.randrange(4)):
                state = chance.choice(["completed", "completed", "active"])
                tally.add(
                    name,
                    state,
                    waited_ms=chance.randrange(100_000),
                    ran_ms=chance.randrange(3_000),
                    now=clock.ms - ago * 60_000,
                )
    register("default", record(queues=tuple(names)), tally.recent(now=clock.ms))

    response = operator.get(PART, headers={"accept-encoding": "gzip"})

    assert len(response.content) < 50 * 1024
    page = gzip.decompress(response.content).decode()
    assert page.count("<svg") == page.count('<button class="mqlite-icon"') == 200


@pytest.mark.parametrize("action", ["pause", "resume"])
def test_pause_and_resume_are_logged_once(operator, queue, make_queue, action):
    make_queue("others")
    Queue.objects.set_paused(queue, action == "resume")

    operator.post(QUEUES, {action: "jobs"})
    assert f"Queue jobs {action}d." in text_after(operator)
    operator.post(QUEUES, {action: "jobs"})
    assert "Queue jobs was" in text_after(operator)

    assert Queue.objects.get(name="jobs").paused == (action == "pause")
    assert not Queue.objects.get(name="others").paused
    (entry,) = LogEntry.objects.all()
    assert (entry.object_id, entry.action_flag) == ("jobs", CHANGE)


def test_pausing_a_queue_that_was_deleted_says_so(operator, db):
    operator.post(QUEUES, {"pause": "jobs"})

    assert "Queue jobs no longer exists." in text_after(operator)


@pytest.mark.parametrize("url", [QUEUES, JOBS])
def test_page_has_no_inline_script_or_style(operator, queue, clock, url):
    register("default", record(), tallies("jobs", (timing.now_ms() // 60_000, 1, 1)))

    page = text_of(operator.get(url))

    assert re.findall(r"<script(?![^>]* (?:src|id)=)|<style| style=| on\w+=", page) == []


def test_breadcrumbs_are_those_of_this_django(viewer, queue):
    own, django = (text_of(viewer.get(url)) for url in (QUEUES, JOBS))

    (tag,) = re.findall(r'<(\w+) class="breadcrumbs"', django)
    assert f'<{tag} class="breadcrumbs"' in own
