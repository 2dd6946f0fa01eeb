"""Redrive and purge of dead letters that are selected or match the filters."""

import pytest
from django.contrib.admin.models import CHANGE, DELETION, LogEntry
from django.urls import reverse

from django_mqlite.admin import bulk_actions
from django_mqlite.models import DeadLetter, Message
from tests.support.verbs import claim_one, dead_letter, row_of, state_of

from .pages import DEAD_LETTERS, act, confirm, hidden_in, text_after, text_of

ACROSS = {"select_across": "1", "_selected_action": "0"}


def ask(client, action, query=""):
    """Return the confirmation page of an action on all that match the query."""
    return text_of(client.post(f"{DEAD_LETTERS}?{query}", {"action": action, **ACROSS}))


def answer(client, page, query="", **extra):
    """Post the form of a confirmation page."""
    return client.post(f"{DEAD_LETTERS}?{query}", hidden_in(page) | extra)


@pytest.fixture
def letters(queue, make_queue):
    """Dead letters by group: two of a, one of b, and one of another queue."""
    make_queue("others")
    return {
        "a": [dead_letter("jobs", group_id="a"), dead_letter("jobs", group_id="a")],
        "b": [dead_letter("jobs", group_id="b", subject="order")],
        "others": [dead_letter("others")],
    }


@pytest.fixture
def one_batch_per_request(monkeypatch):
    """Batches of two, and a clock on which each batch takes as long as a request may."""
    monkeypatch.setattr(bulk_actions, "BATCH", 2)
    monkeypatch.setattr(bulk_actions, "MAX_SECONDS", 1.5)
    monkeypatch.setattr(bulk_actions.time, "monotonic", iter(range(1000)).__next__)


# Confirmation


@pytest.mark.parametrize("action", ["redrive", "purge"])
def test_action_is_confirmed_with_the_count_of_each_queue(operator, letters, action):
    selected = text_of(act(operator, DEAD_LETTERS, action, *letters["a"], *letters["others"]))
    matching = ask(operator, action)

    for page, counts in (
        (selected, ("3 dead letters", "jobs: 2", "others: 1")),
        (matching, ("4 dead letters", "jobs: 3", "others: 1")),
    ):
        assert [text for text in (*counts, "csrfmiddlewaretoken") if text not in page] == []
    assert DeadLetter.objects.count() == 4
    assert not LogEntry.objects.exists()

    answer(operator, selected)
    assert DeadLetter.objects.count() == 1


@pytest.mark.parametrize(
    ("query", "expected"),
    [("", "abo"), ("queue=jobs", "ab"), ("group=a", "a"), ("q=ord", "b"), ("reason=Broken", "abo")],
)
def test_redrive_affects_only_matching_dead_letters(operator, letters, query, expected):
    answer(operator, ask(operator, "redrive", query), query)

    redriven = {
        name[0]
        for name, group in letters.items()
        if {state_of(letter) for letter in group} == {"active"}
    }
    assert redriven == set(expected)


def test_action_affects_no_more_than_was_confirmed(operator, queue):
    dead_letter("jobs")
    page = ask(operator, "purge")
    dead_letter("jobs")

    answer(operator, page)

    assert DeadLetter.objects.count() == 1


def test_message_that_dies_again_is_not_redriven_again(operator, queue, clock):
    letter = dead_letter("jobs")
    page = ask(operator, "redrive")
    DeadLetter.objects.redrive([letter.pk])
    clock.advance(1)
    claim_one("jobs").reject("Broken")

    answer(operator, page)

    assert state_of(letter) == "dead_lettered"


@pytest.mark.parametrize("action", ["redrive", "purge"])
def test_message_that_is_not_a_dead_letter_is_left_alone(operator, queue, action):
    message = Message.objects.enqueue("jobs", 1)
    before = row_of(message)

    confirm(operator, action, message)

    assert row_of(message) == before
    assert not LogEntry.objects.exists()
    assert "the dead letters no longer exist." in text_after(operator)


@pytest.mark.parametrize(
    ("query", "offered"), [("", True), ("?group=nobody", False)], ids=["letters", "no letters"]
)
def test_list_offers_operators_actions_on_all_matching(operator, viewer, letters, query, offered):
    assert ("Redrive all matching" in text_of(operator.get(DEAD_LETTERS + query))) == offered
    assert "all matching" not in text_of(viewer.get(DEAD_LETTERS + query))


# Log entries


@pytest.mark.parametrize(
    ("action", "state", "flag", "text"),
    [("redrive", "active", CHANGE, "Redriven."), ("purge", "gone", DELETION, "Purged.")],
)
def test_action_affects_and_logs_selected_messages(operator, queue, action, state, flag, text):
    selected, other = dead_letter("jobs"), dead_letter("jobs")

    confirm(operator, action, selected)

    assert (state_of(selected), state_of(other)) == (state, "dead_lettered")
    (entry,) = LogEntry.objects.all()
    assert (entry.object_id, entry.action_flag) == (str(selected.pk), flag)
    assert entry.get_change_message() == text
    assert entry.get_admin_url() == f"/admin/django_mqlite/message/{selected.pk}/change/"
    assert f"1 dead letter {text.lower()}" in text_after(operator)


def test_action_on_all_matching_is_one_log_entry(operator, letters, monkeypatch):
    monkeypatch.setattr(bulk_actions, "BATCH", 1)

    answer(operator, ask(operator, "purge", "group=a"), "group=a")
    assert "2 dead letters purged." in text_after(operator)
    answer(operator, ask(operator, "redrive"))

    assert [state_of(letter) for letter in letters["a"]] == ["gone", "gone"]
    redriven, purged = LogEntry.objects.all()
    assert purged.object_repr == "2 of the dead letters with group=a"
    assert (purged.content_type.model, purged.object_id) == ("message", None)
    assert purged.get_change_message() == "Purged."
    assert redriven.object_repr == "2 of all dead letters"


def test_history_of_a_dead_letter_is_that_of_its_message(operator, queue):
    letter = dead_letter("jobs")
    confirm(operator, "redrive", letter)
    claim_one("jobs").reject("Broken")

    url = reverse("admin:django_mqlite_deadletter_history", args=[letter.pk])

    assert "Redriven." in text_of(operator.get(url, follow=True))


# Batches


def test_long_action_continues_until_nothing_is_left(operator, queue, one_batch_per_request):
    for _ in range(5):
        dead_letter("jobs")

    first = text_of(answer(operator, ask(operator, "redrive")))
    active_after_first = Message.objects.filter(state="active").count()
    second = text_of(answer(operator, first))
    answer(operator, second)

    assert active_after_first == 2
    assert "2 dead letters redriven. 3 left." in first
    assert ">Continue</button>" in first
    assert "4 dead letters redriven. 1 left." in second
    assert "5 dead letters redriven." in text_after(operator)


def test_continued_selection_stays_a_selection(operator, letters, monkeypatch):
    monkeypatch.setattr(bulk_actions, "MAX_SECONDS", 0)

    page = text_of(confirm(operator, "purge", *letters["a"], progress_left=3))

    assert "select_across" not in page
    assert 'name="_selected_action"' in page


def test_batches_reach_dead_letters_of_all_times(operator, queue, clock, monkeypatch):
    monkeypatch.setattr(bulk_actions, "BATCH", 2)
    for number in range(7):
        dead_letter("jobs")
        clock.advance(number % 2)

    answer(operator, ask(operator, "purge"))

    assert DeadLetter.objects.count() == 0


# Options of a redrive


def test_redrive_moves_to_another_queue_at_a_rate(operator, letters, clock):
    answer(operator, ask(operator, "redrive", "group=a"), "group=a", into="others", rate="2")

    moved = Message.objects.filter(queue="others").exclude(state="dead_lettered").order_by("pk")
    delays = [(message.visible_at - clock.now).total_seconds() for message in moved]
    assert delays == [0, 0.5]
    assert LogEntry.objects.get().get_change_message() == "Redriven into others at 2 per second."


def test_rate_continues_across_batches_and_requests(operator, queue, clock, one_batch_per_request):
    for _ in range(5):
        dead_letter("jobs")

    page = text_of(answer(operator, ask(operator, "redrive"), rate="1"))
    while DeadLetter.objects.exists():
        clock.advance(0.5)
        response = answer(operator, page)
        page = text_of(response) if response.status_code == 200 else page

    due = sorted(message.visible_at for message in Message.objects.all())
    assert [(time - due[0]).total_seconds() for time in due] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("field", "value"), [("rate", "0"), ("rate", "nan"), ("rate", "fast"), ("into", "nowhere")]
)
def test_invalid_option_is_shown_in_the_form(operator, letters, field, value):
    page = text_of(answer(operator, ask(operator, "redrive"), **{field: value}))

    assert "errorlist" in page
    assert "4 dead letters" in page
    assert DeadLetter.objects.count() == 4


def test_unsuitable_target_queue_is_reported(operator, queue, group_queue):
    dead_letter("jobs")

    answer(operator, ask(operator, "redrive"), into="groups")

    assert DeadLetter.objects.count() == 1
    text = text_after(operator)
    assert "Stopped by an error: 0 dead letters redriven. 1 were left. Queue" in text
    assert not LogEntry.objects.exists()
