"""Requests that change something: permission, method, CSRF token and a writable database."""

import re
from dataclasses import dataclass
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.contenttypes.models import ContentType
from django.urls import reverse

from django_mqlite.models import Message, Queue
from tests.support.verbs import dead_letter

from .conftest import PERMISSIONS, VIEW
from .pages import (
    DEAD_LETTERS,
    LISTS,
    MAKERS,
    QUEUES,
    STATE_OF_ACTION,
    action_of,
    confirmation,
    page_of,
    read_only,
    selection,
    text_of,
    without_csrf_token,
)

CHANGES = [
    *((action, "page") for action in STATE_OF_ACTION),
    *((action, place) for action in ("redrive", "purge") for place in ("selected", "all matching")),
    ("pause", "selected"),
]


def tables() -> list[Any]:
    return [list(model.objects.order_by("pk").values()) for model in (Message, Queue, LogEntry)]


@dataclass(kw_only=True)
class Change:
    """A request that changes a message or a queue."""

    action: str
    place: str
    message: Message

    @property
    def url(self) -> str:
        if self.place == "page":
            return action_of(self.message, self.action)
        return QUEUES if self.action == "pause" else DEAD_LETTERS

    @property
    def fields(self) -> dict[str, Any]:
        if self.place == "page":
            lease = Message.objects.get(pk=self.message.pk).lease_fingerprint
            return {"lease": lease or "", "confirmed": "yes"}
        if self.action == "pause":
            return {"pause": "jobs"}
        across = {"select_across": "1"} if self.place == "all matching" else {}
        return selection(self.action, self.message) | confirmation(1) | across


@pytest.fixture(params=CHANGES, ids=" ".join)
def change(request, queue):
    action, place = request.param
    message = MAKERS[STATE_OF_ACTION.get(action, "active")]()
    return Change(action=action, place=place, message=message)


def test_permission_of_an_action_allows_the_change(make_staff, change):
    before = tables()

    response = make_staff(*VIEW, PERMISSIONS[change.action]).post(change.url, change.fields)

    assert response.status_code == 302
    assert tables() != before


def test_other_permissions_do_not_allow_the_change(make_staff, change, caplog):
    others = set(PERMISSIONS.values()) - {PERMISSIONS[change.action]}
    before = tables()

    response = make_staff(*VIEW, *others).post(change.url, change.fields)

    assert response.status_code == 403 or change.url == DEAD_LETTERS
    assert tables() == before


def test_change_requires_the_view_permission(make_staff, change, caplog):
    response = make_staff(*PERMISSIONS.values()).post(change.url, change.fields)

    assert response.status_code == 403


def test_change_requires_the_csrf_token(operator, change, caplog):
    before = tables()

    response = without_csrf_token(operator).post(change.url, change.fields)

    assert response.status_code == 403
    assert tables() == before


def test_get_request_changes_nothing(operator, change, caplog):
    before = tables()

    with read_only():
        response = operator.get(change.url, change.fields)

    assert (response.status_code == 405) == (change.place == "page")
    assert tables() == before


def test_read_only_database_is_reported_and_not_changed(operator, change):
    before = tables()

    with read_only():
        response = operator.post(change.url, change.fields)

    assert response.status_code == 302
    assert tables() == before


def test_pages_are_read_without_a_write(operator, queue):
    letter = dead_letter("jobs")
    overview = reverse("admin:django_mqlite_queue_overview")
    pause = "?pause=jobs"
    before = tables()

    with read_only():
        for url in (*LISTS, overview, overview + pause, page_of(Message.objects.get())):
            assert operator.get(url).status_code == 200
        assert operator.get(page_of(letter)).status_code in (200, 302)

    assert tables() == before


@pytest.mark.parametrize("url", LISTS)
def test_list_requires_the_view_permission(make_staff, url, caplog):
    assert make_staff(*PERMISSIONS.values()).get(url).status_code == 403


@pytest.mark.parametrize("url", LISTS)
def test_list_offers_actions_to_operators_only(viewer, operator, queue, url):
    dead_letter("jobs")

    offers = [
        len(re.findall('name="(action|pause)"', text_of(client.get(url))))
        for client in (viewer, operator)
    ]

    assert offers[0] == 0
    assert offers[1] > 0


def test_permissions_belong_to_the_message_model(db):
    owners = ContentType.objects.filter(permission__codename="redrive_message")

    assert [owner.model for owner in owners] == ["message"]


@pytest.mark.parametrize("name", ["queue", "message", "deadletter"])
def test_superuser_cannot_add_change_or_delete(admin_client, queue, name, settings, caplog):
    settings.MQLITE = {"QUEUES": {"jobs": {}}}
    letter = dead_letter("jobs")
    id = "jobs" if name == "queue" else letter.pk
    before = tables()

    for page, arguments in (("add", []), ("change", [id]), ("delete", [id])):
        url = reverse(f"admin:django_mqlite_{name}_{page}", args=arguments)
        response = admin_client.post(url, {"subject": "new", "post": "yes"})
        assert response.status_code == 403

    assert tables() == before


def test_delete_selected_is_no_action(operator, queue):
    letter = dead_letter("jobs")
    before = tables()

    operator.post(DEAD_LETTERS, selection("delete_selected", letter) | confirmation(1))

    assert tables() == before
