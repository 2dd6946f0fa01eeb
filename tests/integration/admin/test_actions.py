"""Actions on selected dead letters and queues."""

import pytest
from django.contrib.admin.models import CHANGE, DELETION, LogEntry
from django.urls import reverse

from django_mqlite.models import DeadLetter, Message, Queue
from tests.support.verbs import claim_one, dead_letter, row_of, state_of

from .pages import DEAD_LETTERS, QUEUES, act, confirm, hidden_in, read_only, text_after, text_of


@pytest.mark.parametrize("action", ["redrive", "purge"])
def test_action_is_confirmed_with_counts_first(operator, queue, action):
    letters = [dead_letter("jobs"), dead_letter("jobs")]

    page = text_of(act(operator, DEAD_LETTERS, action, *letters))

    assert "2 dead letters" in page
    assert "jobs: 2" in page
    assert "csrfmiddlewaretoken" in page
    assert DeadLetter.objects.count() == 2
    assert not LogEntry.objects.exists()


def test_confirmation_page_contains_the_fields_to_confirm(operator, queue):
    letter = dead_letter("jobs")
    page = text_of(act(operator, DEAD_LETTERS, "redrive", letter))

    operator.post(DEAD_LETTERS, hidden_in(page))

    assert state_of(letter) == "active"


@pytest.mark.parametrize(
    ("action", "state", "flag", "text"),
    [("redrive", "active", CHANGE, "Redriven."), ("purge", "gone", DELETION, "Purged.")],
)
def test_action_affects_and_logs_each_selected_message(operator, queue, action, state, flag, text):
    chosen, left = dead_letter("jobs"), dead_letter("jobs")

    confirm(operator, action, chosen)

    assert (state_of(chosen), state_of(left)) == (state, "dead_lettered")
    (entry,) = LogEntry.objects.all()
    assert (entry.object_id, entry.action_flag) == (str(chosen.pk), flag)
    assert entry.get_change_message() == text
    assert entry.get_admin_url() == f"/admin/django_mqlite/message/{chosen.pk}/change/"
    assert f"1 dead letter {text.lower()}" in text_after(operator)


def test_dead_letter_history_is_the_history_of_its_message(operator, queue, clock):
    letter = dead_letter("jobs")
    confirm(operator, "redrive", letter)
    claim_one("jobs").reject("Broken")

    url = reverse("admin:django_mqlite_deadletter_history", args=[letter.pk])

    assert "Redriven." in text_of(operator.get(url, follow=True))


@pytest.mark.parametrize("action", ["redrive", "purge"])
def test_action_ignores_messages_that_are_not_dead_letters(operator, queue, action):
    message = Message.objects.enqueue("jobs", 1)
    before = row_of(message)

    confirm(operator, action, message)

    assert row_of(message) == before
    assert not LogEntry.objects.exists()
    assert "the dead letters no longer exist." in text_after(operator)


def test_action_on_a_read_only_database_changes_nothing(operator, queue):
    letter = dead_letter("jobs")

    with read_only():
        response = confirm(operator, "purge", letter)

    assert response.status_code == 302
    assert state_of(letter) == "dead_lettered"
    assert not LogEntry.objects.exists()


@pytest.mark.parametrize(("action", "paused"), [("pause", True), ("resume", False)])
def test_pause_and_resume_log_only_changed_queues(operator, queue, make_queue, action, paused):
    other = make_queue("others")
    other.pause() if not paused else other.resume()
    Queue.objects.set_paused(queue, paused)

    act(operator, QUEUES, action, queue, other)

    assert set(Queue.objects.values_list("paused", flat=True)) == {paused}
    (entry,) = LogEntry.objects.all()
    assert (entry.object_id, entry.action_flag) == ("others", CHANGE)
    assert f"1 queue {action}d." in text_after(operator)
