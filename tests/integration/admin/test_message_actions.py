"""The buttons on a message's page: offered, asked about, refused, fenced, logged."""

import pytest
from django.contrib.admin.models import CHANGE, DELETION, LogEntry
from django.test import Client
from django.urls import reverse

from django_mqlite.admin.words import STATES
from django_mqlite.exceptions import LockLost
from django_mqlite.models import Message
from tests.support.verbs import claim_one, dead_letter, enqueue_and_claim, row_of, state_of

from .conftest import VIEW
from .pages import hidden_in, page_of, read_only, text_of, told

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
def steersman(make_staff):
    """May do everything to messages."""
    return make_staff(*VIEW, *ALL)


def address(message, verb, model="message"):
    return reverse(f"admin:django_mqlite_{model}_{verb}", args=[message.pk])


def press(client, message, verb, **extra):
    """The button with the answer to its question, and what the page has shown of the lease."""
    message.refresh_from_db()
    seen = {"lease": message.lease_fingerprint or "", "confirmed": "yes"}
    return client.post(address(message, verb), {**seen, **extra})


@pytest.mark.parametrize("state", MAKERS)
def test_the_page_offers_just_what_makes_sense_in_the_state(steersman, queue, state):
    page = text_of(steersman.get(page_of(MAKERS[state]())))

    offered = [verb for verb in VERBS if f'/{verb}/">' in page]
    assert offered == sorted(verb for verb, where in WHERE.items() if where == state)


@pytest.mark.parametrize(
    ("verb", "state"),
    [(verb, state) for verb in VERBS for state in MAKERS if state != WHERE[verb]],
)
def test_a_verb_that_makes_no_sense_is_refused_with_the_reason(steersman, queue, verb, state):
    message = MAKERS[state]()
    before = row_of(message)

    press(steersman, message, verb)

    assert row_of(message) == before
    assert f"#{message.pk} is in state “{STATES[state]}”." in told(steersman)
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
def test_a_verb_is_carried_out_and_logged(steersman, queue, verb, after, flag, text):
    message = MAKERS[WHERE[verb]]()

    response = press(steersman, message, verb)

    assert response.status_code == 302
    assert state_of(message) == after
    (entry,) = LogEntry.objects.all()
    assert (entry.object_id, entry.action_flag) == (str(message.pk), flag)
    assert entry.get_change_message() == text
    assert steersman.get(response.url).status_code == 200


@pytest.mark.parametrize("verb", ["purge", "cancel", "release"])
def test_what_could_lose_something_is_asked_first(steersman, queue, verb):
    message = MAKERS[WHERE[verb]]()
    message.refresh_from_db()
    before = row_of(message)

    page = text_of(
        steersman.post(address(message, verb), {"lease": message.lease_fingerprint or ""})
    )
    assert row_of(message) == before

    steersman.post(address(message, verb), hidden_in(page))
    assert state_of(message) != WHERE[verb]


def test_only_the_lease_that_was_seen_is_released(steersman, queue, clock):
    first = enqueue_and_claim("jobs", 1)
    seen = Message.objects.get(pk=first.pk).lease_fingerprint
    first.abandon(delay=0)
    second = claim_one("jobs")

    press(steersman, second, "release", lease=seen)

    assert state_of(second) == "locked"
    assert "the lease that you saw is over" in told(steersman)
    second.complete()


def test_whoever_held_a_released_lease_has_lost_it(steersman, queue):
    message = enqueue_and_claim("jobs", 1)

    press(steersman, message, "release")

    with pytest.raises(LockLost):
        message.complete()


def test_a_delivered_message_that_backs_off_cannot_be_cancelled(steersman, queue):
    message = enqueue_and_claim("jobs", 1)
    message.abandon(delay=60)

    press(steersman, message, "cancel")

    assert state_of(message) == "scheduled"
    assert "never delivered" in told(steersman)


@pytest.mark.parametrize("verb", VERBS)
def test_each_verb_takes_its_own_permission(make_staff, queue, verb, caplog):
    others = [held for held in ALL if held != PERMISSIONS[verb]]
    client = make_staff(*VIEW, *others)
    message = MAKERS[WHERE[verb]]()
    before = row_of(message)

    assert f'/{verb}/">' not in text_of(client.get(page_of(message)))
    assert press(client, message, verb).status_code == 403
    assert row_of(message) == before


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_takes_the_permission_to_see_the_message(make_staff, queue, verb, caplog):
    client = make_staff(*ALL)

    assert press(client, MAKERS[WHERE[verb]](), verb).status_code == 403


@pytest.mark.parametrize("verb", VERBS)
def test_a_get_carries_out_no_verb(steersman, queue, verb, caplog):
    message = MAKERS[WHERE[verb]]()

    with read_only():
        response = steersman.get(address(message, verb), {"confirmed": "yes"})

    assert response.status_code == 405
    assert state_of(message) == WHERE[verb]


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_without_csrf_token_is_refused(steersman, queue, verb, caplog):
    message = MAKERS[WHERE[verb]]()
    strict = Client(enforce_csrf_checks=True)
    strict.cookies = steersman.cookies

    assert press(strict, message, verb).status_code == 403
    assert state_of(message) == WHERE[verb]


def test_a_message_that_is_gone_is_told(steersman, queue):
    message = dead_letter("jobs")
    url = address(message, "redrive")
    Message.objects.all().delete()

    response = steersman.post(url)

    assert response.status_code == 302
    assert f"There is no message #{message.pk} any more." in told(steersman)


def test_a_database_that_refuses_is_told(steersman, queue):
    message = dead_letter("jobs")

    with read_only():
        response = press(steersman, message, "redrive")

    assert response.status_code == 302
    assert state_of(message) == "dead_lettered"


def test_a_redriven_letter_leads_from_its_page_back_to_the_list(steersman, queue):
    letter = dead_letter("jobs")

    response = steersman.post(address(letter, "redrive", "deadletter"))

    assert response.url == reverse("admin:django_mqlite_deadletter_changelist")
    assert state_of(letter) == "active"
