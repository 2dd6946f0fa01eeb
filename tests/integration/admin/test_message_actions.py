"""The actions on a message's page: offered, confirmed, refused, fenced and logged."""

import pytest
from django.contrib.admin.models import CHANGE, DELETION, LogEntry
from django.urls import reverse

from django_mqlite.exceptions import LockLost
from django_mqlite.formatting import STATES
from django_mqlite.models import Message
from tests.support.verbs import claim_one, dead_letter, enqueue_and_claim, row_of, state_of

from .conftest import VIEW
from .pages import hidden_in, page_of, read_only, text_after, text_of, without_csrf_token

ALL = (
    "redrive_message",
    "purge_message",
    "release_message",
    "change_message",
    "delete_message",
    "pause_queue",
)
PERMISSIONS = {
    "redrive": "redrive_message",
    "purge": "purge_message",
    "release": "release_message",
    "run_now": "change_message",
    "cancel": "delete_message",
}
VERBS = sorted(PERMISSIONS)
MAKERS = {
    "active": lambda: Message.objects.enqueue("jobs", 1),
    "scheduled": lambda: Message.objects.enqueue("jobs", 1, delay=60),
    "locked": lambda: enqueue_and_claim("jobs", 1),
    "dead_lettered": lambda: dead_letter("jobs"),
}
WHERE = {
    "redrive": "dead_lettered",
    "purge": "dead_lettered",
    "release": "locked",
    "run_now": "scheduled",
    "cancel": "scheduled",
}


@pytest.fixture
def manager(make_staff):
    """A user with every permission on messages."""
    return make_staff(*VIEW, *ALL)


def address(message, verb, model="message"):
    return reverse(f"admin:django_mqlite_{model}_{verb}", args=[message.pk])


def press(client, message, verb, **extra):
    """Run an action, confirmed, with the lease that the page showed."""
    message.refresh_from_db()
    seen = {"lease": message.lease_fingerprint or "", "confirmed": "yes"}
    return client.post(address(message, verb), {**seen, **extra})


@pytest.mark.parametrize("state", MAKERS)
def test_page_offers_only_actions_for_the_state(manager, queue, state):
    page = text_of(manager.get(page_of(MAKERS[state]())))

    offered = [verb for verb in VERBS if f'/{verb}/">' in page]
    assert offered == sorted(verb for verb, where in WHERE.items() if where == state)


@pytest.mark.parametrize(
    ("verb", "state"),
    [(verb, state) for verb in VERBS for state in MAKERS if state != WHERE[verb]],
)
def test_action_in_another_state_is_refused(manager, queue, verb, state):
    message = MAKERS[state]()
    before = row_of(message)

    press(manager, message, verb)

    assert row_of(message) == before
    assert f"#{message.pk} is {STATES[state]}, not {STATES[WHERE[verb]]}." in text_after(manager)
    assert not LogEntry.objects.exists()


@pytest.mark.parametrize(
    ("verb", "after", "flag", "text"),
    [
        ("redrive", "active", CHANGE, "Redriven."),
        ("purge", "gone", DELETION, "Purged."),
        ("release", "active", CHANGE, "Lease released."),
        ("run_now", "active", CHANGE, "Made due now."),
        ("cancel", "gone", DELETION, "Cancelled."),
    ],
)
def test_action_is_done_and_logged(manager, queue, verb, after, flag, text):
    message = MAKERS[WHERE[verb]]()

    response = press(manager, message, verb)

    assert response.status_code == 302
    assert state_of(message) == after
    (entry,) = LogEntry.objects.all()
    assert (entry.object_id, entry.action_flag) == (str(message.pk), flag)
    assert entry.get_change_message() == text
    assert manager.get(response.url).status_code == 200


@pytest.mark.parametrize("verb", ["purge", "cancel", "release"])
def test_action_that_could_lose_something_is_confirmed_first(manager, queue, verb):
    message = MAKERS[WHERE[verb]]()
    message.refresh_from_db()
    before = row_of(message)

    page = text_of(manager.post(address(message, verb), {"lease": message.lease_fingerprint or ""}))
    assert row_of(message) == before

    manager.post(address(message, verb), hidden_in(page))
    assert state_of(message) != WHERE[verb]


def test_release_ends_only_the_lease_that_was_shown(manager, queue, clock):
    first = enqueue_and_claim("jobs", 1)
    seen = Message.objects.get(pk=first.pk).lease_fingerprint
    first.abandon(delay=0)
    second = claim_one("jobs")

    press(manager, second, "release", lease=seen)

    assert state_of(second) == "locked"
    assert "the lease shown on the page has already ended" in text_after(manager)
    second.complete()


def test_released_lease_is_lost_for_its_holder(manager, queue):
    message = enqueue_and_claim("jobs", 1)

    press(manager, message, "release")

    with pytest.raises(LockLost):
        message.complete()


def test_message_that_backs_off_cannot_be_cancelled(manager, queue):
    message = enqueue_and_claim("jobs", 1)
    message.abandon(delay=60)

    press(manager, message, "cancel")

    assert state_of(message) == "scheduled"
    assert "never delivered" in text_after(manager)


@pytest.mark.parametrize("verb", VERBS)
def test_action_requires_its_own_permission(make_staff, queue, verb, caplog):
    others = [held for held in ALL if held != PERMISSIONS[verb]]
    client = make_staff(*VIEW, *others)
    message = MAKERS[WHERE[verb]]()
    before = row_of(message)

    assert f'/{verb}/">' not in text_of(client.get(page_of(message)))
    assert press(client, message, verb).status_code == 403
    assert row_of(message) == before


@pytest.mark.parametrize("verb", VERBS)
def test_action_requires_the_view_permission(make_staff, queue, verb, caplog):
    client = make_staff(*ALL)

    assert press(client, MAKERS[WHERE[verb]](), verb).status_code == 403


@pytest.mark.parametrize("verb", VERBS)
def test_get_request_runs_no_action(manager, queue, verb, caplog):
    message = MAKERS[WHERE[verb]]()

    with read_only():
        response = manager.get(address(message, verb), {"confirmed": "yes"})

    assert response.status_code == 405
    assert state_of(message) == WHERE[verb]


@pytest.mark.parametrize("verb", VERBS)
def test_action_without_csrf_token_is_refused(manager, queue, verb, caplog):
    message = MAKERS[WHERE[verb]]()

    assert press(without_csrf_token(manager), message, verb).status_code == 403
    assert state_of(message) == WHERE[verb]


def test_deleted_message_is_reported(manager, queue):
    message = dead_letter("jobs")
    url = address(message, "redrive")
    Message.objects.all().delete()

    response = manager.post(url)

    assert response.status_code == 302
    assert f"Message #{message.pk} no longer exists." in text_after(manager)


def test_read_only_database_changes_nothing(manager, queue):
    message = dead_letter("jobs")

    with read_only():
        response = press(manager, message, "redrive")

    assert response.status_code == 302
    assert state_of(message) == "dead_lettered"


def test_redriven_dead_letter_redirects_to_the_list(manager, queue):
    letter = dead_letter("jobs")

    response = manager.post(address(letter, "redrive", "deadletter"))

    assert response.url == reverse("admin:django_mqlite_deadletter_changelist")
    assert state_of(letter) == "active"
