"""The forms of queues and subscriptions."""

import re

import pytest
from django.contrib.admin.models import CHANGE, LogEntry
from django.db import OperationalError
from django.urls import reverse

from django_mqlite.admin.queues import QueueAdmin
from django_mqlite.models import Message, Queue, Subscription

from .conftest import VIEW
from .pages import read_only, text_of

OPTIONS = {
    "ordering_mode": "standard",
    "max_delivery_count": 5,
    "lock_duration_ms": "1.5",
    "backoff_base_ms": "2",
    "backoff_max_ms": "60",
    "default_ttl_ms": "0",
    "dedup_window_ms": "0",
    "retain_completed_ms": "3600",
    "dlq_max_age_ms": "",
    "dlq_max_count": "-1",
    "dlq_max_bytes": "1000",
    "max_in_flight": "3",
    "rate": "100/min",
}
PLACED = "subject == 'placed'"
ADD = reverse("admin:django_mqlite_subscription_add")
JOBS = reverse("admin:django_mqlite_queue_change", args=["jobs"])
STOCK = reverse("admin:django_mqlite_subscription_change", args=["stock"])


@pytest.fixture
def editor(make_staff):
    return make_staff(*VIEW, "change_queue", "add_subscription", "change_subscription")


@pytest.fixture
def subscription(db):
    return Subscription.objects.subscribe("orders", "stock", filter=PLACED)


# Queues


def test_undeclared_queue_can_be_edited(editor, queue):
    response = editor.post(JOBS, OPTIONS)

    assert response.status_code == 302
    queue.refresh_from_db()
    assert (queue.lock_duration_ms, queue.max_delivery_count) == (1_500, 5)
    assert (queue.retain_completed_ms, queue.dead_letter_on_expire) == (3_600_000, False)
    assert (queue.dlq_max_age_ms, queue.dlq_max_count, queue.dlq_max_bytes) == (0, -1, 1_000)
    assert (queue.max_in_flight, str(queue.rate)) == (3, "100/min")
    (entry,) = LogEntry.objects.all()
    assert (entry.object_id, entry.action_flag) == ("jobs", CHANGE)


def test_queue_form_shows_the_stored_options(editor, make_queue):
    make_queue("jobs", lock_duration=90, dlq_max_age=None, dlq_max_count=7, rate="1/30s")

    page = text_of(editor.get(JOBS))

    assert 'name="lock_duration_ms" value="90.0"' in page
    assert 'name="dlq_max_age_ms" value="-1"' in page
    assert 'name="dlq_max_count" value="7"' in page
    assert 'name="rate" value="1/30s"' in page
    (max_bytes,) = re.findall(r'<input [^>]*name="dlq_max_bytes"[^>]*>', page)
    assert "value=" not in max_bytes


@pytest.mark.parametrize(
    ("permissions", "declared"),
    [(["view_queue"], False), (["change_queue"], False), (["view_queue", "change_queue"], True)],
    ids=["view only", "change only", "declared"],
)
def test_queue_without_permission_or_declared_is_not_edited(
    make_staff, queue, settings, permissions, declared, caplog
):
    settings.MQLITE = {"QUEUES": {"jobs": {}} if declared else {}}

    response = make_staff(*permissions).post(JOBS, OPTIONS)

    assert response.status_code == 403
    assert Queue.objects.get().max_delivery_count == 10


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("lock_duration_ms", "0"),
        ("lock_duration_ms", "nan"),
        ("lock_duration_ms", "9e99"),
        ("lock_duration_ms", ""),
        ("max_delivery_count", "0"),
        ("max_delivery_count", str(2**63)),
        ("backoff_base_ms", "-1"),
        ("dlq_max_age_ms", "-2"),
        ("dlq_max_age_ms", "nan"),
        ("dlq_max_age_ms", "9e99"),
        ("dlq_max_count", "0"),
        ("dlq_max_count", "1.5"),
        ("dlq_max_count", str(2**63)),
        ("dlq_max_bytes", "inf"),
        ("dlq_max_bytes", "1e3"),
        ("ordering_mode", "chaos"),
        ("max_in_flight", "-1"),
        ("rate", "100"),
    ],
)
def test_invalid_queue_option_is_refused_in_the_form(editor, queue, field, value):
    response = editor.post(JOBS, {**OPTIONS, field: value})

    assert 'class="errorlist"' in text_of(response)
    assert Queue.objects.get().max_delivery_count == 10


def test_empty_rate_in_the_form_removes_the_limit(editor, make_queue):
    queue = make_queue("jobs", rate="100/min")

    editor.post(JOBS, {**OPTIONS, "rate": ""})

    queue.refresh_from_db()
    assert queue.rate is None


def test_queue_with_messages_cannot_become_strict_fifo(editor, queue):
    Message.objects.enqueue("jobs", 1)

    page = text_of(editor.post(JOBS, {**OPTIONS, "ordering_mode": "strict_fifo"}))

    queue.refresh_from_db()
    assert (queue.ordering_mode, queue.max_delivery_count) == ("standard", 10)
    assert "when it is empty" in error_of(page, "ordering_mode")
    assert 'name="max_delivery_count" value="5"' in page
    assert not LogEntry.objects.exists()


def error_of(page, field):
    """Return the error above or below a field of the form."""
    found = re.search(rf'<ul class="errorlist" id="id_{field}_error">.*?</ul>', page, re.DOTALL)
    return found[0] if found else ""


def test_limits_on_dead_letters_read_the_default_or_unbounded(viewer, make_queue, settings):
    settings.MQLITE = {"DLQ_MAX_COUNT": 1_000}
    make_queue("jobs", dlq_max_bytes=None)

    page = text_of(viewer.get(JOBS))

    assert "the default (unbounded)" in page
    assert "the default (1,000)" in page
    assert ">unbounded<" in page
    assert ">-1<" not in page


def test_database_error_of_a_form_keeps_what_was_typed(editor, queue):
    with read_only():
        page = text_of(editor.post(JOBS, OPTIONS))

    assert "Nothing was changed" in page
    assert 'name="max_delivery_count" value="5"' in page


def test_page_that_cannot_be_read_does_not_redirect_to_itself(editor, queue, monkeypatch):
    def fail(*args, **options):
        raise OperationalError("database is locked")

    monkeypatch.setattr(QueueAdmin, "get_object", fail)

    with pytest.raises(OperationalError):
        editor.get(JOBS)


# Subscriptions


def test_subscription_is_added_with_its_queue(editor, db):
    response = editor.post(ADD, {"topic": "orders", "subscription": "stock", "filter": PLACED})

    assert response.status_code == 302
    subscription = Subscription.objects.get()
    assert (subscription.topic, subscription.filter) == ("orders", PLACED)
    assert Queue.objects.get().kind == "subscription"
    assert LogEntry.objects.get().get_change_message() == f"Filter: {PLACED}"


def test_subscription_form_changes_only_the_filter(editor, subscription):
    editor.post(STOCK, {"filter": "", "topic": "other"})

    subscription.refresh_from_db()
    assert (subscription.topic, subscription.filter) == ("orders", "")


@pytest.mark.parametrize(
    ("field", "value", "error"),
    [
        ("filter", "subject ==", "is not a valid CEL expression"),
        ("filter", "colour == 'red'", "uses colour"),
        ("topic", "a b", "Invalid queue name"),
        ("subscription", "", "required"),
    ],
)
def test_invalid_subscription_is_refused_in_the_form(editor, db, field, value, error):
    fields = {"topic": "orders", "subscription": "stock", "filter": "", field: value}

    assert error in text_of(editor.post(ADD, fields))
    assert not Subscription.objects.exists()


def test_subscription_with_a_taken_name_leaves_nothing_behind(editor, queue):
    page = text_of(editor.post(ADD, {"topic": "orders", "subscription": "jobs", "filter": PLACED}))

    assert "is taken by" in error_of(page, "subscription")
    assert 'name="topic" value="orders"' in page
    assert "subject == &#x27;placed&#x27;" in page
    assert not Subscription.objects.exists()
    assert not LogEntry.objects.exists()


@pytest.mark.parametrize(
    ("filter", "sample", "result"),
    [
        (PLACED, {"sample_subject": "placed"}, "The filter matches"),
        (PLACED, {"sample_subject": "paid"}, "The filter does not match"),
        ("properties.a == 'b'", {"sample_properties": '{"a": "b"}'}, "The filter matches"),
        ("properties.a == 'b'", {}, "The filter fails on this sample"),
        ("body_size > 3", {"sample_body": "long enough"}, "The filter matches"),
        ("subject", {}, "The filter fails on this sample"),
        *(
            ("", {"sample_properties": properties}, 'class="errorlist')
            for properties in (
                *('{"a": 1}', "[1]", "{", "NaN", '{"a": "\\ud800"}'),
                *("9" * 5_000, "[" * 100_000, '{"a": ' + "9" * 5_000 + "}"),
            )
        ),
    ],
    ids=lambda value: str(value)[:40],
)
def test_filter_is_tried_on_a_sample_without_saving(editor, subscription, filter, sample, result):
    page = text_of(editor.post(STOCK, {"filter": filter, "_try": "1", **sample}))

    assert result in page
    assert Subscription.objects.get().filter == PLACED


def test_subscription_cannot_be_deleted(editor, subscription, caplog):
    url = reverse("admin:django_mqlite_subscription_delete", args=["stock"])

    assert editor.post(url, {"post": "yes"}).status_code == 403
    assert Subscription.objects.exists()


def test_view_permission_does_not_allow_changing_subscriptions(viewer, subscription, caplog):
    assert "subject == &#x27;placed&#x27;" in text_of(viewer.get(STOCK))
    assert viewer.post(STOCK, {"filter": ""}).status_code == 403
    assert viewer.post(ADD, {"topic": "a", "subscription": "b"}).status_code == 403
