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


@pytest.fixture
def manager(make_staff):
    return make_staff(*VIEW, "discard_message", "change_message")


def confirmed(client, url, action, *messages):
    """Run the action and confirm it."""
    return client.post(url, hidden_in(text_of(act(client, url, action, *messages))))


@pytest.mark.parametrize(
    ("state", "offered"),
    [
        ("", ["activate", "discard"]),
        ("active", ["discard"]),
        ("locked", ["discard"]),
        ("scheduled", ["discard"]),
        ("deferred", ["activate", "discard"]),
        ("completed", []),
        ("dead_lettered", []),
    ],
)
def test_list_offers_actions_that_its_state_allows(manager, make_queue, state, offered):
    make_queue("jobs", retain_completed=60)
    enqueue_and_claim("jobs", 1).complete()
    dead_letter("jobs")
    deferred("jobs")
    enqueue_and_claim("jobs", 1)
    Message.objects.enqueue("jobs", 1)
    Message.objects.enqueue("jobs", 1, delay=60)

    page = text_of(manager.get(MESSAGES, {"state": state}))

    for action in STATES:
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
    entries = LogEntry.objects.order_by("object_id")
    assert [(entry.object_id, entry.get_change_message()) for entry in entries] == [
        (str(message.pk), log) for message in chosen
    ]
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
    logged = {entry.object_repr.partition(" ")[2] for entry in LogEntry.objects.all()}
    assert logged == {"of the messages with queue=jobs"}


def test_read_only_database_discards_nothing(manager, queue):
    message = Message.objects.enqueue("jobs", 1)
    fields = hidden_in(text_of(act(manager, MESSAGES, "discard", message)))

    with read_only():
        manager.post(MESSAGES, fields)

    assert state_of(message) == "active"
    assert not LogEntry.objects.exists()
