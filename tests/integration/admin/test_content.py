"""Bodies, results and the texts of errors: hidden without a permission, or masked."""

import pytest
from django.urls import reverse

from django_mqlite.models import Message
from tests.support.verbs import claim_one, dead_letter, enqueue_and_claim, overwrite

from .masking import SECRET
from .pages import DEAD_LETTERS, page_of, text_of

BODY = {"card": SECRET}


def failed_message() -> Message:
    """Return a dead letter whose body, result, error and description have the secret."""
    message = enqueue_and_claim("jobs", BODY)
    message.abandon(delay=0, error=KeyError(SECRET))
    claim_one("jobs").reject("Refused", f"card {SECRET}", error=ValueError(SECRET))
    overwrite(Message.objects.filter(pk=message.pk), result=SECRET)
    return Message.objects.get(pk=message.pk)


def download(message: Message) -> str:
    return reverse("admin:django_mqlite_message_body", args=[message.pk])


def pages_of(client, message: Message) -> list[str]:
    """Return every page that shows something of the message's content."""
    letter_page = reverse("admin:django_mqlite_deadletter_change", args=[message.pk])
    return [text_of(client.get(url)) for url in (page_of(message), letter_page, DEAD_LETTERS)]


@pytest.fixture
def reader(make_staff):
    """A user who may view messages but not their content."""
    return make_staff("view_message", "view_deadletter")


def test_content_is_hidden_without_its_permission(reader, queue, caplog):
    message = failed_message()

    for page in pages_of(reader, message):
        assert SECRET not in page
        assert "ValueError" in page
    assert "view_body" in text_of(reader.get(page_of(message)))
    assert reader.get(download(message)).status_code == 403


def test_explanation_names_only_the_class_of_an_error(reader, queue):
    head = enqueue_and_claim("jobs", BODY, group_id="a")
    head.abandon(delay=60, error=KeyError(SECRET))
    behind = Message.objects.enqueue("jobs", 1, group_id="a")

    for message in (head, behind):
        page = text_of(reader.get(page_of(message)))
        assert "failed with KeyError" in page
        assert SECRET not in page


def test_content_of_a_task_is_hidden_without_its_permission(reader, queue):
    arguments = {"args": [SECRET], "kwargs": {}}
    message = Message.objects.enqueue(
        "jobs",
        arguments,
        subject="shop.tasks.pay",
        content_type="application/vnd.django-mqlite.task+json",
    )

    page = text_of(reader.get(page_of(message)))

    assert "shop.tasks.pay(…)" in page
    assert SECRET not in page


def test_configured_callable_masks_every_text(viewer, queue, settings):
    settings.MQLITE = {"ADMIN_BODY": "tests.integration.admin.masking.mask"}
    message = failed_message()

    page, letter_page, list_of_letters = pages_of(viewer, message)

    for part in ("body", "result", "error"):
        assert f"({part} of #{message.pk})" in page
    assert f"ValueError: (error of #{message.pk})" in list_of_letters
    for text in (page, letter_page, list_of_letters):
        assert SECRET not in text
    response = viewer.get(download(message))
    assert response.content == b'{\n  "card": "(body of #%d)"\n}' % message.pk


@pytest.mark.parametrize(("name", "error"), [("broken", "ValueError"), ("not_text", "TypeError")])
def test_content_is_not_shown_if_the_callable_fails(viewer, queue, settings, caplog, name, error):
    settings.MQLITE = {"ADMIN_BODY": f"tests.integration.admin.masking.{name}"}
    message = failed_message()
    caplog.clear()

    pages = pages_of(viewer, message)
    response = viewer.get(download(message))

    for page in pages:
        assert f"raised {error}." in page
        assert SECRET not in page
    assert SECRET.encode() not in response.content
    assert f"raised {error} for the body of #{message.pk}" in caplog.text
    assert SECRET not in caplog.text


def test_permission_of_the_content_is_not_that_of_the_page(make_staff, queue, caplog):
    message = dead_letter("jobs")

    assert make_staff("view_body").get(page_of(Message.objects.get())).status_code == 403
    assert make_staff("view_body").get(download(message)).status_code == 403
