"""Redrive a dead letter with an edited body, and enqueue a message from the admin."""

import pytest
from django.contrib.admin.models import LogEntry
from django.urls import reverse

from django_mqlite.message import TASK
from django_mqlite.models import Message, Subscription
from tests.support.verbs import dead_letter, row_of, state_of

from .conftest import VIEW
from .pages import MESSAGES, action_of, page_of, read_only, text_after, text_of

ENQUEUE = reverse("admin:django_mqlite_message_enqueue")
JSON = {"format": "json"}


def edit_url(letter, model="message"):
    return action_of(letter, "edit", model)


@pytest.fixture
def editor(make_staff):
    return make_staff(*VIEW, "redrive_edited_message")


@pytest.fixture
def sender(make_staff):
    return make_staff(*VIEW, "enqueue_message")


# Redrive with an edited body


def test_dead_letter_is_redriven_with_the_edited_body(editor, queue):
    letter = dead_letter("jobs", {"to": "ada@example"})

    assert edit_url(letter) in text_of(editor.get(page_of(Message.objects.get())))
    assert "&quot;to&quot;: &quot;ada@example&quot;" in text_of(editor.get(edit_url(letter)))
    response = editor.post(edit_url(letter), JSON | {"body": '{"to": "ada@example.com"}'})

    (copy,) = Message.objects.all()
    assert response.url == page_of(copy)
    assert (copy.data, copy.properties["redriven_from"]) == (
        {"to": "ada@example.com"},
        str(letter.pk),
    )
    (entry,) = LogEntry.objects.all()
    assert (entry.object_id, entry.get_change_message()) == (
        str(letter.pk),
        f"Redriven with an edited body as #{copy.pk}.",
    )
    assert f"#{letter.pk} was redriven with an edited body as {copy}." in text_after(editor)


def test_text_is_edited_as_text_and_keeps_its_lines(editor, queue):
    letter = dead_letter("jobs", "one\ntwo")

    page = text_of(editor.get(edit_url(letter, "deadletter")))
    assert "\none\ntwo</textarea>" in page
    editor.post(edit_url(letter, "deadletter"), {"format": "text", "body": "\r\none\r\nthree\r\n"})

    assert Message.objects.get().data == "\none\nthree\n"


def test_edited_task_stays_a_task(editor, queue):
    letter = dead_letter("jobs", {"args": [1], "kwargs": {}}, content_type=TASK)

    editor.post(edit_url(letter), JSON | {"body": '{"args": [2], "kwargs": {}}'})

    assert Message.objects.get().content_type == TASK


@pytest.mark.parametrize(
    ("body", "error"), [("{", "This is not valid JSON"), ("[NaN]", "JSON cannot represent")]
)
def test_invalid_body_is_shown_in_the_form_as_typed(editor, queue, body, error):
    letter = dead_letter("jobs", 1)

    page = text_of(editor.post(edit_url(letter), JSON | {"body": body}))

    assert error in page
    assert f"{body}</textarea>" in page
    assert state_of(letter) == "dead_lettered"


def test_taken_unique_key_is_shown_in_the_form(editor, queue):
    letter = dead_letter("jobs", 1, unique_key="report")
    holder = Message.objects.enqueue("jobs", 2, unique_key="report")

    page = text_of(editor.post(edit_url(letter), JSON | {"body": "3"}))

    assert f"unfinished message #{holder.pk}" in page
    assert not LogEntry.objects.exists()


def test_message_that_is_no_longer_dead_is_not_redriven_again(editor, queue):
    message = Message.objects.enqueue("jobs", 1)

    assert editor.post(edit_url(message), JSON | {"body": "2"}).status_code == 302

    assert f"There is no dead letter #{message.pk} any more." in text_after(editor)
    assert Message.objects.get().data == 1


@pytest.mark.parametrize("missing", ["redrive_edited_message", "view_body", "view_message"])
def test_editing_requires_its_permission_and_that_of_the_body(make_staff, queue, missing, caplog):
    letter = dead_letter("jobs", {"card": "4111"})
    before = row_of(letter)
    permissions = {*VIEW, "redrive_edited_message", "redrive_message", "change_message"}
    client = make_staff(*(permissions - {missing}))

    for response in (
        client.get(edit_url(letter)),
        client.post(edit_url(letter), JSON | {"body": "2"}),
    ):
        assert response.status_code == 403
        assert b"4111" not in response.content

    assert row_of(letter) == before


def test_masked_body_cannot_be_edited(editor, queue, settings, caplog):
    settings.MQLITE = {"ADMIN_BODY": "tests.integration.admin.masking.mask"}
    letter = dead_letter("jobs", 1)

    assert edit_url(letter) not in text_of(editor.get(page_of(letter)))
    assert editor.post(edit_url(letter), JSON | {"body": "2"}).status_code == 403


def test_binary_body_is_not_offered_for_editing(editor, queue, caplog):
    letter = dead_letter("jobs", b"\x89\xff")

    assert edit_url(letter) not in text_of(editor.get(page_of(letter)))
    assert editor.get(edit_url(letter)).status_code == 403


# Enqueue


def test_message_is_enqueued_with_its_options(sender, queue):
    assert ENQUEUE in text_of(sender.get(MESSAGES))
    assert "null" not in text_of(sender.get(ENQUEUE)).partition("<fieldset")[2]
    fields = JSON | {
        "target": "queue:jobs",
        "body": '{"a": 1}',
        "subject": "order.placed",
        "priority": "5",
        "delay": "60",
        "correlation_id": "trace",
        "properties": '{"tenant": "acme"}',
    }

    response = sender.post(ENQUEUE, fields)

    message = Message.objects.get()
    assert response.url == page_of(message)
    assert (message.queue, message.data, message.state) == ("jobs", {"a": 1}, "scheduled")
    assert (message.subject, message.priority, message.correlation_id) == (
        "order.placed",
        5,
        "trace",
    )
    assert message.properties == {"tenant": "acme"}
    (entry,) = LogEntry.objects.all()
    assert (entry.object_id, entry.get_change_message()) == (str(message.pk), "Enqueued.")
    assert f"Enqueued {message}." in text_after(sender)


def test_message_is_published_to_the_subscriptions_of_a_topic(sender, db):
    Subscription.objects.subscribe("orders", "mails")
    Subscription.objects.subscribe("orders", "stock")

    sender.post(ENQUEUE, {"format": "text", "target": "topic:orders", "body": "hello"})

    copies = Message.objects.order_by("queue")
    assert [(copy.queue, copy.data) for copy in copies] == [("mails", "hello"), ("stock", "hello")]
    assert LogEntry.objects.count() == 2


def test_duplicate_is_reported_and_not_logged(sender, queue):
    holder = Message.objects.enqueue("jobs", 1, unique_key="report")

    sender.post(ENQUEUE, JSON | {"target": "queue:jobs", "body": "2", "unique_key": "report"})

    assert f"already has this message as {holder}." in text_after(sender)
    assert not LogEntry.objects.exists()


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"body": "{"}, "This is not valid JSON"),
        ({"target": "queue:nowhere"}, "Select a valid choice"),
        ({"properties": '{"a": 1}'}, "properties must map str to str"),
        ({"group_id": "a", "priority": "1"}, "priority cannot be combined"),
        ({"delay": "-1"}, "greater than or equal to 0"),
        ({"ttl": "0"}, "ttl"),
    ],
)
def test_invalid_message_is_shown_in_the_form(sender, queue, fields, error):
    page = text_of(sender.post(ENQUEUE, JSON | {"target": "queue:jobs", "body": "1"} | fields))

    assert error in page
    assert "errorlist" in page
    assert not Message.objects.exists()


def test_read_only_database_enqueues_nothing(sender, queue):
    with read_only():
        page = text_of(sender.post(ENQUEUE, JSON | {"target": "queue:jobs", "body": "1"}))

    assert "readonly" in page
    assert not Message.objects.exists()


def test_enqueueing_requires_its_own_permission(make_staff, queue, caplog):
    client = make_staff(*VIEW, "change_message", "redrive_edited_message")

    assert ENQUEUE not in text_of(client.get(MESSAGES))
    fields = JSON | {"target": "queue:jobs", "body": "1"}
    assert client.post(ENQUEUE, fields).status_code == 403
    assert make_staff("enqueue_message").get(ENQUEUE).status_code == 403
    assert not Message.objects.exists()
