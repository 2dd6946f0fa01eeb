"""Actions on all dead letters that match a filter: counts, batches, progress."""

import pytest
from django.contrib.admin.models import LogEntry

from django_mqlite.admin import actions
from django_mqlite.models import DeadLetter, Message
from tests.support.verbs import claim_one, dead_letter, enqueue_and_claim, state_of

from .pages import DEAD_LETTERS, confirm, hidden_in, text_after, text_of

ACROSS = {"select_across": "1", "_selected_action": "0"}


def ask(client, action, query="", **extra):
    return text_of(client.post(f"{DEAD_LETTERS}?{query}", {"action": action, **ACROSS, **extra}))


def answer(client, page, query="", **extra):
    return client.post(f"{DEAD_LETTERS}?{query}", {**hidden_in(page), **extra})


@pytest.fixture
def letters(queue, make_queue):
    """Dead letters by group: two of a, one of b, and one of another queue."""
    make_queue("others")
    return {
        "a": [dead_letter("jobs", group_id="a"), dead_letter("jobs", group_id="a")],
        "b": [dead_letter("jobs", group_id="b", subject="order")],
        "others": [dead_letter("others")],
    }


def test_list_offers_actions_only_with_permission(operator, viewer, letters):
    assert "Redrive all matching" in text_of(operator.get(DEAD_LETTERS))
    assert "all matching" not in text_of(viewer.get(DEAD_LETTERS))


def test_empty_list_offers_no_actions(operator, letters):
    assert "all matching" not in text_of(operator.get(DEAD_LETTERS + "?group=nobody"))


@pytest.mark.parametrize("action", ["redrive", "purge"])
def test_action_is_confirmed_with_the_count_of_each_queue(operator, letters, action):
    page = ask(operator, action)

    assert "4 dead letters" in page
    assert "jobs: 3" in page
    assert "others: 1" in page
    assert DeadLetter.objects.count() == 4


@pytest.mark.parametrize(
    ("query", "expected"),
    [("", "abo"), ("queue=jobs", "ab"), ("group=a", "a"), ("q=ord", "b"), ("reason=Broken", "abo")],
)
def test_redrive_affects_only_matching_dead_letters(operator, letters, query, expected):
    answer(operator, ask(operator, "redrive", query), query)

    redriven = {
        name[0]
        for name, group in letters.items()
        for letter in group
        if state_of(letter) == "active"
    }
    assert redriven == set(expected)


def test_purge_deletes_and_logs_all_matching_dead_letters(operator, letters):
    answer(operator, ask(operator, "purge", "group=a"), "group=a")

    assert [state_of(letter) for letter in letters["a"]] == ["gone", "gone"]
    assert DeadLetter.objects.count() == 2
    assert "2 dead letters purged." in text_after(operator)
    (entry,) = LogEntry.objects.all()
    assert (entry.object_repr, entry.get_change_message()) == (
        "2 of the dead letters with group=a",
        "Purged.",
    )
    assert (entry.content_type.model, entry.object_id) == ("message", None)


@pytest.fixture
def one_batch_per_request(monkeypatch):
    """Batches of two; a clock that reaches the end of the time after each of them."""
    monkeypatch.setattr(actions, "BATCH", 2)
    monkeypatch.setattr(actions, "MAX_SECONDS", 1.5)
    monkeypatch.setattr(actions.time, "monotonic", iter(range(1000)).__next__)


def test_long_action_continues_until_nothing_is_left(operator, queue, one_batch_per_request):
    for _ in range(5):
        dead_letter("jobs")

    first = answer(operator, ask(operator, "redrive"))
    active_after_first = Message.objects.filter(state="active").count()
    second = answer(operator, text_of(first))
    answer(operator, text_of(second))

    assert active_after_first == 2
    assert "2 dead letters redriven. 3 left." in text_of(first)
    assert ">Continue</button>" in text_of(first)
    assert "4 dead letters redriven. 1 left." in text_of(second)
    assert "5 dead letters redriven." in text_after(operator)


def test_long_action_logs_one_entry_per_request(operator, queue, monkeypatch):
    monkeypatch.setattr(actions, "BATCH", 2)
    for _ in range(5):
        dead_letter("jobs")

    answer(operator, ask(operator, "redrive"))

    assert LogEntry.objects.get().object_repr == "5 of all dead letters"


def test_rate_continues_across_requests(operator, queue, clock, one_batch_per_request):
    for _ in range(3):
        dead_letter("jobs")

    page = text_of(answer(operator, ask(operator, "redrive"), rate="1"))
    clock.advance(0.5)
    answer(operator, page)

    due = sorted(message.visible_at for message in Message.objects.all())
    assert [(at - due[0]).total_seconds() for at in due] == [0, 1, 2]


def test_message_that_dies_again_is_not_redriven_again(operator, queue, clock):
    letter = dead_letter("jobs")
    dead_letter("jobs")
    page = ask(operator, "redrive")
    DeadLetter.objects.redrive([letter.pk])
    clock.advance(1)
    claim_one("jobs").reject("Broken")

    answer(operator, page)

    assert state_of(letter) == "dead_lettered"
    assert DeadLetter.objects.count() == 1


def test_action_affects_no_more_than_was_confirmed(operator, queue):
    dead_letter("jobs")
    page = ask(operator, "purge")
    dead_letter("jobs")

    answer(operator, page)

    assert DeadLetter.objects.count() == 1


def test_redrive_moves_to_another_queue_at_a_rate(operator, letters, clock):
    page = ask(operator, "redrive", "group=a")
    answer(operator, page, "group=a", into="others", rate="2")

    moved = Message.objects.filter(queue="others").exclude(state="dead_lettered").order_by("pk")
    delays = [(message.visible_at - clock.now).total_seconds() for message in moved]
    assert delays == [0, 0.5]
    assert LogEntry.objects.get().get_change_message() == "Redriven into others at 2 per second."


def test_rate_continues_across_batches(operator, queue, clock, monkeypatch):
    monkeypatch.setattr(actions, "BATCH", 2)
    for _ in range(5):
        dead_letter("jobs")

    answer(operator, ask(operator, "redrive"), rate="1")

    delays = [(message.visible_at - clock.now).total_seconds() for message in Message.objects.all()]
    assert sorted(delays) == [0, 1, 2, 3, 4]


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
    assert "Stopped after 0" in text_after(operator)
    assert not LogEntry.objects.exists()


@pytest.mark.parametrize(
    "wrong",
    [
        {"progress_left": "x"},
        {"progress_until": "-1"},
        {"progress_done": str(2**63)},
        {"progress_id": ""},
    ],
)
def test_forged_progress_is_refused(operator, letters, wrong, caplog):
    response = answer(operator, ask(operator, "purge"), **wrong)

    assert response.status_code == 400
    assert DeadLetter.objects.count() == 4


def test_continued_selection_stays_a_selection(operator, letters, monkeypatch):
    monkeypatch.setattr(actions, "MAX_SECONDS", 0)

    response = confirm(operator, "purge", *letters["a"], progress_left=3)

    assert "select_across" not in text_of(response)
    assert 'name="_selected_action"' in text_of(response)


@pytest.mark.parametrize("action", ["redrive", "purge"])
def test_view_only_staff_cannot_act_on_all_matching(viewer, letters, action):
    viewer.post(DEAD_LETTERS, {"action": action, **ACROSS, "confirmed": "yes"})

    assert DeadLetter.objects.count() == 4


def test_batches_reach_dead_letters_of_all_times(operator, queue, clock, monkeypatch):
    monkeypatch.setattr(actions, "BATCH", 2)
    for number in range(7):
        enqueue_and_claim("jobs", number).reject("Broken")
        clock.advance(number % 2)

    answer(operator, ask(operator, "purge"))

    assert DeadLetter.objects.count() == 0
