"""Discarding and activating selected messages, and all that match."""

import pytest
from django.contrib.admin.models import LogEntry

from django_mqlite.admin import bulk_actions
from django_mqlite.models import Message
from tests.support.verbs import (
    claim_one,
    dead_letter,
    deferred,
    enqueue_and_claim,
    row_of,
    state_of,
)

from .conftest import VIEW
from .pages import (
    MESSAGES,
    act,
    confirmation,
    hidden_in,
    read_only,
    selection,
    text_after,
    text_of,
)

STATES = {"activate": "active", "discard": "dead_lettered"}
BULK_OFFERS = {
    "": ["redrive", "purge", "run_now", "cancel", "release", "activate", "discard"],
    "active": ["discard"],
    "locked": ["release", "discard"],
    "scheduled": ["run_now", "cancel", "discard"],
    "deferred": ["activate", "discard"],
    "completed": [],
    "dead_lettered": ["redrive", "purge"],
}
"""The actions that the list offers, by the state that it is filtered by."""


@pytest.fixture
def manager(make_staff):
    return make_staff(*VIEW, "discard_message", "change_message")


def confirmed(client, url, action, *messages):
    """Run the action and confirm it."""
    return client.post(url, hidden_in(text_of(act(client, url, action, *messages))))


@pytest.mark.parametrize(("state", "offered"), BULK_OFFERS.items())
def test_list_offers_actions_that_its_state_allows(operator, make_queue, state, offered):
    make_queue("jobs", retain_completed=60)
    enqueue_and_claim("jobs", 1).complete()
    dead_letter("jobs")
    deferred("jobs")
    enqueue_and_claim("jobs", 1)
    Message.objects.enqueue("jobs", 1)
    Message.objects.enqueue("jobs", 1, delay=60)

    page = text_of(operator.get(MESSAGES, {"state": state}))

    for action in BULK_OFFERS[""]:
        assert (f'<option value="{action}">' in page) == (action in offered)
        assert (f'name="action" value="{action}"' in page) == (action in offered)


@pytest.mark.parametrize(
    ("action", "permission"), [("activate", "change_message"), ("discard", "discard_message")]
)
def test_action_needs_its_own_permission(make_staff, queue, action, permission):
    others = {"change_message", "discard_message", "redrive_message"} - {permission}
    client = make_staff(*VIEW, *others)
    message = deferred("jobs")

    assert f'value="{action}"' not in text_of(client.get(MESSAGES))
    client.post(MESSAGES, selection(action, message) | confirmation(1))

    assert state_of(message) == "deferred"


@pytest.mark.parametrize(("action", "log"), [("activate", "Activated."), ("discard", "Discarded.")])
def test_selected_messages_are_counted_confirmed_and_logged(manager, queue, action, log):
    dead, left = dead_letter("jobs"), deferred("jobs")
    chosen = [deferred("jobs"), deferred("jobs")]
    before = row_of(dead)

    page = text_of(act(manager, MESSAGES, action, *chosen, dead))
    assert "jobs: 2" in page
    assert [state_of(message) for message in chosen] == ["deferred"] * 2
    confirmed(manager, MESSAGES, action, *chosen, dead)

    assert [state_of(message) for message in chosen] == [STATES[action]] * 2
    assert (state_of(left), row_of(dead)) == ("deferred", before)
    (entry,) = LogEntry.objects.all()
    assert (entry.object_id, entry.object_repr) == (None, "2 selected messages")
    assert entry.get_change_message() == f"{log} #{chosen[0].pk}, #{chosen[1].pk}."
    assert f"2 messages {log.lower()}" in text_after(manager)


def test_selection_without_unfinished_messages_is_reported(manager, queue):
    dead = dead_letter("jobs")

    act(manager, MESSAGES, "discard", dead)

    assert "the messages have already ended." in text_after(manager)


def test_all_matching_messages_are_discarded_in_batches(manager, queue, make_queue, monkeypatch):
    monkeypatch.setattr(bulk_actions, "BATCH", 2)
    monkeypatch.setattr(bulk_actions, "MAX_SECONDS", 1.5)
    monkeypatch.setattr(bulk_actions.time, "monotonic", iter(range(1000)).__next__)
    make_queue("others")
    other = Message.objects.enqueue("others", 1)
    for _ in range(4):
        Message.objects.enqueue("jobs", 1)
    held = claim_one("jobs")
    url = f"{MESSAGES}?queue=jobs"

    fields = {"action": "discard", "select_across": "1", "_selected_action": "0"}
    page = text_of(manager.post(url, fields))
    assert "Discard 4 messages?" in page
    later = Message.objects.enqueue("jobs", 1)
    fields = hidden_in(page)
    while "progress_left" in fields:
        response = manager.post(url, fields)
        fields = hidden_in(text_of(response)) if response.status_code == 200 else {}

    assert state_of(held) == "dead_lettered"
    assert Message.objects.filter(dead_letter_reason="Discarded").count() == 4
    assert (state_of(other), state_of(later)) == ("active", "active")
    assert "4 messages discarded." in text_after(manager)
    (entry,) = LogEntry.objects.all()
    assert entry.object_repr == "4 of the messages with queue=jobs"


def test_read_only_database_discards_nothing(manager, queue):
    message = Message.objects.enqueue("jobs", 1)
    fields = hidden_in(text_of(act(manager, MESSAGES, "discard", message)))

    with read_only():
        manager.post(MESSAGES, fields)

    assert state_of(message) == "active"
    assert not LogEntry.objects.exists()


@pytest.fixture
def one_batch_per_request(monkeypatch):
    """Batches of two, and a clock on which each batch takes as long as a request may."""
    monkeypatch.setattr(bulk_actions, "BATCH", 2)
    monkeypatch.setattr(bulk_actions, "MAX_SECONDS", 1.5)
    monkeypatch.setattr(bulk_actions.time, "monotonic", iter(range(1000)).__next__)


def test_stopped_action_reports_what_was_done(manager, queue, one_batch_per_request):
    for _ in range(5):
        Message.objects.enqueue("jobs", 1)
    url = f"{MESSAGES}?queue=jobs"
    fields = {"action": "discard", "select_across": "1", "_selected_action": "0"}
    page = text_of(manager.post(url, hidden_in(text_of(manager.post(url, fields)))))

    manager.post(url, hidden_in(page) | {"stop": "yes"})

    assert Message.objects.filter(state="active").count() == 3
    assert "Stopped: 2 messages discarded. 3 were left." in text_after(manager)
    assert LogEntry.objects.get().object_repr == "2 of the messages with queue=jobs"


def test_failed_batch_is_not_reported_as_done(manager, queue, one_batch_per_request):
    for _ in range(4):
        Message.objects.enqueue("jobs", 1)
    url = f"{MESSAGES}?queue=jobs"
    fields = {"action": "discard", "select_across": "1", "_selected_action": "0"}
    page = text_of(manager.post(url, hidden_in(text_of(manager.post(url, fields)))))

    with read_only():
        manager.post(url, hidden_in(page))

    text = text_after(manager)
    assert "Stopped by an error: 2 messages discarded. 2 were left." in text
    assert Message.objects.filter(state="active").count() == 2


def test_due_and_cancelled_messages_are_those_that_can_be(operator, queue):
    """A message that waits for a retry can be made due, but not be cancelled."""
    retrying = enqueue_and_claim("jobs", 1)
    retrying.abandon(delay=60)
    scheduled = Message.objects.enqueue("jobs", 1, delay=60)

    page = text_of(act(operator, MESSAGES, "cancel", retrying, scheduled))
    assert "Cancel 1 scheduled message?" in page
    confirmed(operator, MESSAGES, "cancel", retrying, scheduled)
    confirmed(operator, MESSAGES, "run_now", retrying)

    assert (state_of(scheduled), state_of(retrying)) == ("gone", "active")


def test_leases_are_released_unless_they_began_after_the_question(operator, queue, clock):
    asked = [enqueue_and_claim("jobs", 1), enqueue_and_claim("jobs", 2)]
    page = text_of(act(operator, MESSAGES, "release", *asked))
    clock.advance(1)
    asked[1].abandon(delay=0)
    later = claim_one("jobs")
    assert later.pk == asked[1].pk

    operator.post(MESSAGES, hidden_in(page))

    assert (state_of(asked[0]), state_of(later)) == ("active", "locked")


def test_dead_letters_are_redriven_from_the_list_of_messages(operator, queue):
    letters = [dead_letter("jobs"), dead_letter("jobs")]
    url = f"{MESSAGES}?state=dead_lettered"
    fields = {"action": "redrive", "select_across": "1", "_selected_action": "0"}

    operator.post(url, hidden_in(text_of(operator.post(url, fields))))

    assert [state_of(letter) for letter in letters] == ["active", "active"]
