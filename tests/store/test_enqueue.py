"""A message enters a queue."""

from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from django_mqlite import GroupRequired, MessageTooLarge, PriorityRefused, QueueNotFound, enqueue
from django_mqlite.models import Message
from django_mqlite.testing.fake_clock import START_MS
from tests.support.verbs import claim_one

pytestmark = pytest.mark.django_db


def test_what_is_returned_is_what_is_stored(clock, queue):
    returned = Message.objects.enqueue(
        "jobs",
        {"order": 7},
        priority=3,
        ttl=60,
        max_delivery_count=4,
        message_id="m-1",
        correlation_id="c-1",
        reply_to="answers",
        subject="order.placed",
        properties={"tenant": "a"},
    )

    stored = Message.objects.get(pk=returned.pk)
    for field in Message._meta.concrete_fields:
        assert getattr(returned, field.name) == getattr(stored, field.name), field.name


def test_the_fields_are_those_that_were_given(clock, queue):
    id = enqueue(
        "jobs", {"order": 7}, priority=3, ttl=60, message_id="m-1", properties={"a": "b"}
    ).pk

    stored = Message.objects.get(pk=id)
    assert (stored.queue, stored.state, stored.priority) == ("jobs", "active", 3)
    assert (stored.body, stored.content_type) == (b'{"order":7}', "application/json")
    assert (stored.message_id, stored.properties) == ("m-1", {"a": "b"})
    assert (stored.enqueued_at, stored.visible_at) == (clock.now, clock.now)
    assert stored.expires_at == clock.now + timedelta(seconds=60)
    assert (stored.delivery_count, stored.lock_token, stored.locked_until) == (0, None, None)


def test_it_is_one_statement(clock, queue):
    with CaptureQueriesContext(connection) as queries:
        enqueue("jobs", {"order": 7})

    assert len(queries) == 1


def test_the_returned_instance_reads_blocked_when_asked(clock, group_queue):
    first, second = (enqueue("groups", n, group_id="g") for n in range(2))

    assert first.blocked is False
    assert second.blocked is True


@pytest.mark.parametrize(
    ("data", "body", "content_type"),
    [
        (b"\x00\xff", b"\x00\xff", "application/octet-stream"),
        ("naïve", "naïve".encode(), "text/plain; charset=utf-8"),
        ([1, None], b"[1,null]", "application/json"),
        (b"", b"", "application/octet-stream"),
        ("", b"", "text/plain; charset=utf-8"),
        (None, b"null", "application/json"),
    ],
    ids=["bytes", "text", "json", "no bytes", "no text", "null"],
)
def test_data_comes_back_as_it_went_in(clock, queue, data, body, content_type):
    enqueue("jobs", data)

    claimed = claim_one(queue)

    assert (claimed.body, claimed.content_type) == (body, content_type)
    assert claimed.data == data


def test_a_content_type_given_decides_what_data_gives_back(clock, queue):
    enqueue("jobs", b'{"a":1}', content_type="application/json")

    assert claim_one(queue).data == {"a": 1}


@pytest.mark.parametrize("delay", [0.001, 60, timedelta(days=365)])
def test_a_delay_schedules(clock, queue, delay):
    message = enqueue("jobs", None, delay=delay)

    assert message.state == "scheduled"
    assert message.visible_at > clock.now
    assert Message.objects.claim("jobs") == []


@pytest.mark.parametrize("delay", [0, timedelta()])
def test_no_delay_is_active_now(clock, queue, delay):
    message = enqueue("jobs", None, delay=delay)

    assert (message.state, message.visible_at) == ("active", clock.now)


def test_a_visible_at_in_the_future_schedules(clock, queue):
    at = clock.now + timedelta(milliseconds=1)

    message = enqueue("jobs", None, visible_at=at)

    assert (message.state, message.visible_at) == ("scheduled", at)


@pytest.mark.parametrize("before", [timedelta(), timedelta(milliseconds=1), timedelta(days=9_999)])
def test_a_visible_at_that_has_passed_is_active_now(clock, queue, before):
    message = enqueue("jobs", None, visible_at=clock.now - before)

    assert (message.state, message.visible_at) == ("active", clock.now - before)


@pytest.mark.parametrize(
    ("default_ttl", "ttl", "expected"),
    [(0, None, None), (0, 60, 60), (100, None, 100), (100, 60, 60), (100, 500, 100)],
    ids=["none", "own", "default", "own below the ceiling", "ceiling"],
)
def test_the_time_to_live_counts_from_visibility(clock, make_queue, default_ttl, ttl, expected):
    make_queue("jobs", default_ttl=default_ttl)

    message = enqueue("jobs", None, delay=1_000, **({} if ttl is None else {"ttl": ttl}))

    assert message.expires_at == (
        None if expected is None else clock.now + timedelta(seconds=1_000 + expected)
    )
    assert Message.objects.get(pk=message.pk).expires_at == message.expires_at


def test_the_furthest_times_still_fit_into_a_datetime(clock, queue):
    message = enqueue(
        "jobs", None, visible_at=datetime(8999, 12, 31, tzinfo=UTC), ttl=timedelta(days=36_500)
    )

    assert Message.objects.get(pk=message.pk).expires_at.year > 9_000


def test_an_unknown_queue_is_named_with_the_one_that_was_meant(clock, queue):
    with pytest.raises(QueueNotFound, match="Did you mean 'jobs'") as caught:
        enqueue("job", None)

    assert caught.value.queue == "job"
    assert not Message.objects.exists()


@pytest.mark.parametrize(
    "name", ["JOBS", "jobs ", "'; DROP TABLE mqlite_queues; --", "%s", "%(a)s"]
)
def test_a_queue_is_found_by_its_exact_name_only(clock, queue, name):
    with pytest.raises(QueueNotFound):
        enqueue(name, None)


def test_a_group_fifo_queue_requires_a_group(clock, group_queue):
    with pytest.raises(GroupRequired) as caught:
        enqueue("groups", None)

    assert caught.value.queue == "groups"
    assert not Message.objects.exists()


@pytest.mark.parametrize("priority", [1, -1])
def test_a_strict_queue_refuses_a_priority(clock, strict_queue, priority):
    with pytest.raises(PriorityRefused) as caught:
        enqueue("strict", None, priority=priority)

    assert caught.value.queue == "strict"
    assert not Message.objects.exists()


def test_a_strict_queue_takes_priority_zero_and_groups(clock, strict_queue):
    message = enqueue("strict", None, priority=0, group_id="g")

    assert (message.group_id, message.line) == ("g", "")


def test_a_body_over_the_limit_of_the_setting_is_refused(clock, queue, settings):
    settings.MQLITE = {"MAX_BODY_BYTES": 10}

    with pytest.raises(MessageTooLarge):
        enqueue("jobs", b"x" * 11)

    assert enqueue("jobs", b"x" * 10).pk
    assert Message.objects.count() == 1


def test_the_default_limit_is_one_mebibyte(clock, queue):
    assert enqueue("jobs", b"x" * 1024 * 1024).pk

    with pytest.raises(MessageTooLarge):
        enqueue("jobs", b"x" * (1024 * 1024 + 1))


@pytest.mark.parametrize(
    ("data", "options"),
    [
        ({1: 2}, {}),
        (float("nan"), {}),
        (object(), {}),
        (None, {"ttl": 0}),
        (None, {"priority": 2**63}),
        (None, {"message_id": "a\0b"}),
        (None, {"properties": {"a": 1}}),
    ],
)
def test_a_bad_argument_is_refused_before_any_sql(clock, queue, data, options):
    with CaptureQueriesContext(connection) as queries, pytest.raises((TypeError, ValueError)):
        enqueue("jobs", data, **options)

    assert len(queries) == 0


def test_a_priority_of_63_bits_is_stored(clock, queue):
    for priority in (2**63 - 1, -(2**63) + 1, 0):
        enqueue("jobs", None, priority=priority)

    assert [m.priority for m in Message.objects.claim("jobs", limit=3)] == [
        2**63 - 1,
        0,
        -(2**63) + 1,
    ]


def test_enqueueing_into_a_paused_queue_goes_on(clock, queue):
    queue.pause()

    assert enqueue("jobs", None).state == "active"


def test_the_enqueue_time_is_the_clocks(clock, queue):
    enqueue("jobs", None)

    with connection.cursor() as cursor:
        cursor.execute("SELECT enqueued_at FROM mqlite_messages")
        assert cursor.fetchall() == [(START_MS,)]
