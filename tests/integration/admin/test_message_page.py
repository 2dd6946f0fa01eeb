"""The pages of a message and of a queue."""

from datetime import timedelta

import pytest
from django.urls import reverse

from django_mqlite.models import Message
from tests.support.verbs import claim_one, dead_letter, enqueue_and_claim, overwrite, row_of

from .pages import DEAD_LETTERS, MESSAGES, page_of, text_of

EVIL = "<script>alert(1)</script>"


@pytest.mark.parametrize(
    ("body", "content_type", "text"),
    [
        (
            {"order": {"id": 17}},
            None,
            "{\n  &quot;order&quot;: {\n    &quot;id&quot;: 17\n  }\n}",
        ),
        ("Grüße\nund Küsse", None, "Grüße\nund Küsse"),
        (b"\x00\xffABC", None, "00000000  00 ff 41 42 43"),
        ("x" * 100_000, None, "20,000 of 100,000 characters"),
        (b"\0" * 100_000, None, "4,096 of 100,000 bytes"),
        (b"{not json", "application/json", "{not json"),
        (b"\xff\xfe", "application/json", "ff fe"),
        (b"\xff\xfe", "text/plain", "ff fe"),
        (b'"\\ud800"', "application/json", "\\ud800"),
        (b"[" * 100_000, "application/json", "[[[["),
        (b"[" * 500 + b"]" * 500, "application/json", "["),
        (b"9" * 5_000, "application/json", "9999"),
        (b"", "application/json", "<pre"),
        (b"a\0b", "text/plain", "a\\0b"),
    ],
    ids=range(14),
)
def test_body_is_shown_by_content_type_and_truncated(viewer, queue, body, content_type, text):
    message = Message.objects.enqueue("jobs", body, content_type=content_type)

    page = text_of(viewer.get(page_of(message)))

    assert text in page
    assert len(page) < 60_000


def test_lease_is_shown_without_its_token(viewer, queue, clock):
    message = enqueue_and_claim("jobs", 1)
    token = message.lock_token
    overwrite(Message.objects.filter(pk=message.pk), locked_by="host-a:4711")
    clock.advance(10)

    page = text_of(viewer.get(page_of(message)))

    assert ">host-a:4711</a>, until 18:00:30 (in 20 s), held for 10 s" in page
    assert "1 of 10" in page
    assert token
    assert token not in page
    assert row_of(message)["lock_token"] == token


def test_progress_is_shown_on_the_page_and_in_the_list_of_locked_messages(viewer, queue):
    message = enqueue_and_claim("jobs", 1)
    message.set_progress(0.4, "page 12 of 30")

    assert "40 %, page 12 of 30" in text_of(viewer.get(page_of(message)))
    assert "40 %, page 12 of 30" in text_of(viewer.get(MESSAGES, {"state": "locked"}))
    assert "page 12" not in text_of(viewer.get(MESSAGES))


def test_expired_lease_is_shown_as_waiting_for_the_reaper(viewer, queue, clock):
    message = enqueue_and_claim("jobs", 1)
    clock.advance(queue.lock_duration + timedelta(seconds=5))

    page = text_of(viewer.get(page_of(message)))

    assert "unnamed worker, expired at 18:00:30 (5 s ago), waiting for the reaper" in page


def test_failed_deliveries_are_shown_with_tracebacks(viewer, queue):
    message = Message.objects.enqueue("jobs", 1)
    for text in ("first trouble", "second trouble"):
        try:
            raise ValueError(text)
        except ValueError as error:
            claim_one("jobs", worker="host-b:1").abandon(delay=0, error=error)

    page = text_of(viewer.get(page_of(message)))

    errors = [page.index(f"builtins.ValueError: {name} trouble") for name in ("second", "first")]
    assert errors == sorted(errors)
    assert page.count("Traceback (most recent call last)") == 2
    assert "delivery 2, host-b:1" in page


def test_message_texts_are_escaped(viewer, queue):
    names = ("subject", "group_id", "correlation_id", "reply_to", "message_id")
    texts = dict.fromkeys(names, EVIL)
    message = Message.objects.enqueue("jobs", EVIL, **texts, properties={EVIL: EVIL})
    claim_one("jobs", worker=EVIL).abandon(delay=0, error=ValueError(EVIL))
    held = claim_one("jobs", worker=EVIL)
    claimed = text_of(viewer.get(page_of(held)))
    held.reject(EVIL, EVIL, error=EVIL)

    pages = [text_of(viewer.get(url)) for url in (page_of(message), MESSAGES, DEAD_LETTERS)]

    for page in [claimed, *pages]:
        assert EVIL not in page
        assert "&lt;script&gt;" in page


def test_message_page_needs_at_most_ten_queries(viewer, queue, django_assert_max_num_queries):
    message = Message.objects.enqueue("jobs", 1)

    with django_assert_max_num_queries(10):
        viewer.get(page_of(message))


@pytest.mark.parametrize("data", ["x" * 100_000, EVIL, b"\0\xff", {"a": 1}])
def test_body_is_downloaded_as_inert_bytes(viewer, queue, data):
    message = Message.objects.enqueue("jobs", data)
    url = reverse("admin:django_mqlite_message_body", args=[message.pk])

    response = viewer.get(url)

    assert f'href="{url}"' in text_of(viewer.get(page_of(message)))
    assert response.content == bytes(message.body)
    assert response["Content-Type"] == "application/octet-stream"
    assert response["Content-Disposition"] == f'attachment; filename="message-{message.pk}"'
    assert response["X-Content-Type-Options"] == "nosniff"


def test_body_download_requires_the_view_permission(make_staff, queue, caplog):
    message = Message.objects.enqueue("jobs", 1)
    url = reverse("admin:django_mqlite_message_body", args=[message.pk])

    assert make_staff("view_queue", "change_message").get(url).status_code == 403
    assert make_staff("view_message").get(url.replace(str(message.pk), "999")).status_code == 404


@pytest.mark.parametrize("make", [enqueue_and_claim, dead_letter, Message.objects.enqueue])
def test_message_page_explains_the_state(viewer, queue, make):
    message = make("jobs", 1)

    page = " ".join(text_of(viewer.get(page_of(message))).split())

    assert f"#{message.pk}: {message.explain().text}" in page


@pytest.mark.parametrize("model", ["message", "deadletter"])
@pytest.mark.parametrize("id", [1, 999, -5, 10**30])
def test_page_of_a_missing_message_is_what_why_says(viewer, queue, caplog, model, id):
    enqueue_and_claim("jobs", 1).complete()

    response = viewer.get(reverse(f"admin:django_mqlite_{model}_change", args=[id]))

    assert response.status_code == 404
    assert f"#{id}: {Message.objects.explain(id).text}" in response.content.decode()


def test_page_of_an_invalid_number_redirects_to_the_index(viewer, queue):
    response = viewer.get(reverse("admin:django_mqlite_message_change", args=["x"]))

    assert response.status_code == 302


def test_queue_options_are_shown_in_the_units_of_the_settings(viewer, make_queue):
    make_queue("mails", lock_duration=90, default_ttl=0, retain_completed=3600)

    page = text_of(viewer.get(reverse("admin:django_mqlite_queue_change", args=["mails"])))

    assert "90 s" in page
    assert "3,600 s" in page
    assert "unlimited" in page


def test_queue_page_shows_where_options_are_configured(viewer, settings, make_queue):
    make_queue("mails")
    url = reverse("admin:django_mqlite_queue_change", args=["mails"])
    created = text_of(viewer.get(url))
    settings.MQLITE = {"QUEUES": {"mails": {}}}

    declared = text_of(viewer.get(url))

    assert "create_queue()" in created
    assert "in the settings" in declared
