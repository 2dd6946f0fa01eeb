"""The actions on a message's page: offered, confirmed, refused, fenced and logged."""

import pytest
from django.contrib.admin.models import CHANGE, DELETION, LogEntry
from django.utils.text import get_text_list

from django_mqlite.exceptions import LockLost
from django_mqlite.formatting import STATES
from django_mqlite.models import Message
from tests.support.verbs import claim_one, dead_letter, enqueue_and_claim, row_of, state_of

from .conftest import PERMISSIONS, VIEW
from .pages import (
    DEAD_LETTERS,
    MAKERS,
    STATE_OF_ACTION,
    action_of,
    hidden_in,
    is_possible,
    page_of,
    text_after,
    text_of,
)

ACTIONS = sorted(STATE_OF_ACTION)


def press(client, message, action, **extra):
    """Run an action, confirmed, with the lease that the page showed."""
    message.refresh_from_db()
    seen = {"lease": message.lease_fingerprint or "", "confirmed": "yes"}
    return client.post(action_of(message, action), seen | extra)


@pytest.mark.parametrize("state", MAKERS)
def test_page_offers_only_actions_for_the_state(operator, viewer, queue, state):
    page = page_of(MAKERS[state]())

    offered = [action for action in ACTIONS if f'/{action}/">' in text_of(operator.get(page))]

    assert offered == [action for action in ACTIONS if is_possible(action, state)]
    assert [action for action in ACTIONS if f'/{action}/">' in text_of(viewer.get(page))] == []


@pytest.mark.parametrize("action", ACTIONS)
def test_page_offers_an_action_only_with_its_permission(make_staff, queue, action):
    client = make_staff(*VIEW, *(set(PERMISSIONS.values()) - {PERMISSIONS[action]}))

    assert f'/{action}/">' not in text_of(client.get(page_of(MAKERS[STATE_OF_ACTION[action]]())))


@pytest.mark.parametrize(
    ("action", "state"),
    [(action, state) for action in ACTIONS for state in MAKERS if not is_possible(action, state)],
)
def test_action_in_another_state_is_refused(operator, queue, action, state):
    message = MAKERS[state]()
    before = row_of(message)

    press(operator, message, action)

    assert row_of(message) == before
    expected = [label for name, label in STATES.items() if is_possible(action, name)]
    text = f"#{message.pk} is {STATES[state]}, not {get_text_list(expected)}."
    assert text in text_after(operator)
    assert not LogEntry.objects.exists()


@pytest.mark.parametrize(
    ("action", "state", "flag", "text"),
    [
        ("redrive", "active", CHANGE, "Redriven."),
        ("purge", "gone", DELETION, "Purged."),
        ("release", "active", CHANGE, "Lease released."),
        ("run_now", "active", CHANGE, "Made due now."),
        ("cancel", "gone", DELETION, "Cancelled."),
        ("activate", "active", CHANGE, "Activated."),
        ("discard", "dead_lettered", CHANGE, "Discarded."),
    ],
)
def test_action_is_done_and_logged(operator, queue, action, state, flag, text):
    message = MAKERS[STATE_OF_ACTION[action]]()

    response = press(operator, message, action)

    assert state_of(message) == state
    (entry,) = LogEntry.objects.all()
    assert (entry.object_id, entry.action_flag) == (str(message.pk), flag)
    assert entry.get_change_message() == text
    assert operator.get(response.url).status_code == 200


@pytest.mark.parametrize("action", ["purge", "cancel", "release", "discard"])
def test_action_that_could_lose_something_is_confirmed_first(operator, queue, action):
    message = MAKERS[STATE_OF_ACTION[action]]()
    message.refresh_from_db()
    before = row_of(message)

    seen = {"lease": message.lease_fingerprint or ""}
    page = text_of(operator.post(action_of(message, action), seen))
    assert row_of(message) == before

    operator.post(action_of(message, action), hidden_in(page))
    assert state_of(message) != STATE_OF_ACTION[action]


def test_release_ends_only_the_lease_that_was_shown(operator, queue):
    first = enqueue_and_claim("jobs", 1)
    seen = Message.objects.get(pk=first.pk).lease_fingerprint
    first.abandon(delay=0)
    second = claim_one("jobs")
    token = second.lock_token

    press(operator, second, "release", lease=seen)

    assert row_of(second)["lock_token"] == token
    assert "the leases shown on the page have already ended" in text_after(operator)


@pytest.mark.parametrize("action", ["release", "discard"])
def test_ended_lease_is_lost_for_its_holder(operator, queue, action):
    message = enqueue_and_claim("jobs", 1)

    press(operator, Message.objects.get(), action)

    with pytest.raises(LockLost):
        message.complete()


def test_message_that_backs_off_cannot_be_cancelled(operator, queue):
    message = enqueue_and_claim("jobs", 1)
    message.abandon(delay=60)

    assert '/cancel/">' not in text_of(operator.get(page_of(message)))
    press(operator, message, "cancel", confirmed="")

    assert state_of(message) == "scheduled"
    assert "never delivered" in text_after(operator)


def test_deleted_message_is_reported(operator, queue):
    message = dead_letter("jobs")
    Message.objects.all().delete()

    response = operator.post(action_of(message, "redrive"))

    assert response.status_code == 302
    assert f"There is no message #{message.pk} any more." in text_after(operator)


def test_redriven_dead_letter_leads_back_to_the_list(operator, queue):
    letter = dead_letter("jobs")

    response = operator.post(action_of(letter, "redrive", "deadletter"))

    assert response.url == DEAD_LETTERS
    assert state_of(letter) == "active"
