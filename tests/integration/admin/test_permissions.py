"""Permissions, and requests that must not change anything."""

import pytest
from django.contrib.contenttypes.models import ContentType
from django.urls import reverse

from tests.support.verbs import dead_letter, enqueue_and_claim, row_of, state_of

from .conftest import VIEW
from .pages import (
    DEAD_LETTERS,
    LISTS,
    QUEUES,
    act,
    confirm,
    page_of,
    read_only,
    text_of,
    without_csrf_token,
)


@pytest.mark.parametrize("url", LISTS)
def test_list_requires_the_view_permission(make_staff, url):
    client = make_staff("change_message", "redrive_message", "purge_message", "pause_queue")

    assert client.get(url).status_code == 403


@pytest.mark.parametrize("url", LISTS)
def test_view_only_staff_are_offered_no_action(viewer, queue, url):
    dead_letter("jobs")

    assert 'name="action"' not in text_of(viewer.get(url))


@pytest.mark.parametrize(
    ("permissions", "action"),
    [
        ([], "redrive"),
        ([], "purge"),
        ([], "delete_selected"),
        (["redrive_message"], "purge"),
        (["purge_message"], "redrive"),
    ],
)
def test_dead_letter_action_requires_its_own_permission(make_staff, queue, permissions, action):
    letter = dead_letter("jobs")
    before = row_of(letter)

    confirm(make_staff(*VIEW, *permissions), action, letter)

    assert row_of(letter) == before


def test_view_only_staff_cannot_pause(viewer, queue):
    act(viewer, QUEUES, "pause", queue)

    queue.refresh_from_db()
    assert not queue.paused


def test_permissions_belong_to_the_message_model(db):
    owners = ContentType.objects.filter(permission__codename="redrive_message")

    assert [owner.model for owner in owners] == ["message"]


@pytest.mark.parametrize("url", [*LISTS, "{page}", "{letter}"])
def test_get_request_changes_nothing(operator, queue, url):
    letter = dead_letter("jobs")
    message = enqueue_and_claim("jobs", 1)
    letter_page = reverse("admin:django_mqlite_deadletter_change", args=[letter.pk])
    before = row_of(letter), row_of(message)
    query = {"action": "purge", "_selected_action": letter.pk, "confirmed": "yes"}

    with read_only():
        operator.get(url.format(page=page_of(message), letter=letter_page))
        operator.get(DEAD_LETTERS, query)

    assert (row_of(letter), row_of(message)) == before


def test_pause_without_csrf_token_is_refused(operator, queue, caplog):
    response = act(without_csrf_token(operator), QUEUES, "pause", queue)

    assert response.status_code == 403
    queue.refresh_from_db()
    assert not queue.paused


@pytest.mark.parametrize("action", ["redrive", "purge"])
def test_action_without_csrf_token_is_refused(operator, queue, action, caplog):
    letter = dead_letter("jobs")

    response = confirm(without_csrf_token(operator), action, letter)

    assert response.status_code == 403
    assert state_of(letter) == "dead_lettered"
