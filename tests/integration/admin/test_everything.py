"""Everything that matches a filter is redriven or purged: counted, in batches, with progress."""

import pytest
from django.contrib.admin.models import LogEntry

from django_mqlite.admin import run
from django_mqlite.models import DeadLetter, Message
from tests.support.verbs import claim_one, dead_letter, enqueue_and_claim, state_of

from .pages import DEAD_LETTERS, confirm, hidden_in, text_of, told

ACROSS = {"select_across": "1", "_selected_action": "0"}


def ask(client, action, query="", **extra):
    return text_of(client.post(f"{DEAD_LETTERS}?{query}", {"action": action, **ACROSS, **extra}))


def answer(client, page, query="", **extra):
    return client.post(f"{DEAD_LETTERS}?{query}", {**hidden_in(page), **extra})


@pytest.fixture
def letters(queue, make_queue):
    """By group: two of a, one of b, and one of another queue."""
    make_queue("others")
    return {
        "a": [dead_letter("jobs", group_id="a"), dead_letter("jobs", group_id="a")],
        "b": [dead_letter("jobs", group_id="b", subject="order")],
        "others": [dead_letter("others")],
    }


def test_the_list_offers_it_to_whom_may_do_it(operator, viewer, letters):
    assert "Redrive all that match" in text_of(operator.get(DEAD_LETTERS))
    assert "all that match" not in text_of(viewer.get(DEAD_LETTERS))


def test_an_empty_list_offers_nothing(operator, letters):
    assert "all that match" not in text_of(operator.get(DEAD_LETTERS + "?group=nobody"))


@pytest.mark.parametrize("action", ["redrive", "purge"])
def test_it_is_asked_first_with_the_count_of_each_queue(operator, letters, action):
    page = ask(operator, action)

    assert "4 dead letters" in page
    assert "jobs: 3" in page
    assert "others: 1" in page
    assert DeadLetter.objects.count() == 4


@pytest.mark.parametrize(
    ("query", "expected"),
    [("", "abo"), ("queue=jobs", "ab"), ("group=a", "a"), ("q=ord", "b"), ("reason=Broken", "abo")],
)
def test_just_what_matches_is_redriven(operator, letters, query, expected):
    answer(operator, ask(operator, "redrive", query), query)

    redriven = {
        name[0] for name, of in letters.items() for each in of if state_of(each) == "active"
    }
    assert redriven == set(expected)


def test_everything_that_matches_is_purged(operator, letters):
    answer(operator, ask(operator, "purge", "group=a"), "group=a")

    assert [state_of(each) for each in letters["a"]] == ["gone", "gone"]
    assert DeadLetter.objects.count() == 2
    assert "2 dead letters are gone for good." in told(operator)


def test_the_log_says_what_was_done_to_what(operator, letters):
    answer(operator, ask(operator, "purge", "group=a"), "group=a")

    (entry,) = LogEntry.objects.all()
    assert (entry.object_repr, entry.get_change_message()) == ("2 of group=a", "Purged.")
    assert (entry.content_type.model, entry.object_id) == ("message", None)


def test_a_long_run_goes_on_from_page_to_page(operator, queue, monkeypatch):
    monkeypatch.setattr(run, "BATCH", 2)
    monkeypatch.setattr(run, "SLICE", 0)
    for _ in range(5):
        dead_letter("jobs")
    monkeypatch.setattr(run.time, "monotonic", iter(range(1000)).__next__)
    monkeypatch.setattr(run, "SLICE", 1.5)

    page = ask(operator, "redrive")
    seen = []
    while True:
        response = answer(operator, page)
        if response.status_code == 302:
            break
        page = text_of(response)
        seen.append(Message.objects.filter(state="active").count())
        assert f'max="5" value="{seen[-1]}"' in page

    assert seen == [2, 4]
    assert "5 dead letters are back at work." in told(operator)
    assert [entry.object_repr for entry in LogEntry.objects.order_by("pk")] == [
        "2 of everything",
        "2 of everything",
        "1 of everything",
    ]


def test_what_dies_again_meanwhile_is_not_redriven_again(operator, queue, clock):
    letter = dead_letter("jobs")
    dead_letter("jobs")
    page = ask(operator, "redrive")
    DeadLetter.objects.redrive([letter.pk])
    clock.advance(1)
    claim_one("jobs").reject("Broken")

    answer(operator, page)

    assert state_of(letter) == "dead_lettered"
    assert DeadLetter.objects.count() == 1


def test_more_than_was_confirmed_is_not_touched(operator, queue):
    dead_letter("jobs")
    page = ask(operator, "purge")
    dead_letter("jobs")

    answer(operator, page)

    assert DeadLetter.objects.count() == 1


def test_it_is_redriven_into_another_queue_at_a_rate(operator, letters, clock):
    page = ask(operator, "redrive", "group=a")
    answer(operator, page, "group=a", into="others", rate="2")

    moved = Message.objects.filter(queue="others").exclude(state="dead_lettered").order_by("pk")
    delays = [(each.visible_at - clock.now).total_seconds() for each in moved]
    assert delays == [0, 0.5]
    assert LogEntry.objects.get().get_change_message() == "Redriven into others at 2 a second."


def test_a_rate_holds_over_batches(operator, queue, clock, monkeypatch):
    monkeypatch.setattr(run, "BATCH", 2)
    for _ in range(5):
        dead_letter("jobs")

    answer(operator, ask(operator, "redrive"), rate="1")

    delays = [(each.visible_at - clock.now).total_seconds() for each in Message.objects.all()]
    assert sorted(delays) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("field", "value"), [("rate", "0"), ("rate", "nan"), ("rate", "fast"), ("into", "nowhere")]
)
def test_a_wrong_option_is_told_and_asked_again(operator, letters, field, value):
    page = text_of(answer(operator, ask(operator, "redrive"), **{field: value}))

    assert "errorlist" in page
    assert "4 dead letters" in page
    assert DeadLetter.objects.count() == 4


def test_a_queue_that_cannot_take_them_is_told(operator, queue, group_queue):
    dead_letter("jobs")

    answer(operator, ask(operator, "redrive"), into="groups")

    assert DeadLetter.objects.count() == 1
    assert "Stopped after 0" in told(operator)
    assert not LogEntry.objects.exists()


@pytest.mark.parametrize(
    "wrong", [{"run_total": "x"}, {"run_until": "-1"}, {"run_done": str(2**63)}, {"run_since": ""}]
)
def test_a_form_that_is_not_ours_is_refused(operator, letters, wrong, caplog):
    response = answer(operator, ask(operator, "purge"), **wrong)

    assert response.status_code == 400
    assert DeadLetter.objects.count() == 4


def test_a_selection_never_becomes_everything(operator, letters, monkeypatch):
    monkeypatch.setattr(run, "SLICE", 0)

    response = confirm(operator, "purge", *letters["a"], run_total=3)

    assert "select_across" not in text_of(response)
    assert 'name="_selected_action"' in text_of(response)


@pytest.mark.parametrize("action", ["redrive", "purge"])
def test_view_only_staff_cannot(viewer, letters, action):
    viewer.post(DEAD_LETTERS, {"action": action, **ACROSS, "confirmed": "yes"})

    assert DeadLetter.objects.count() == 4


def test_letters_that_differ_in_death_are_all_reached(operator, queue, clock, monkeypatch):
    monkeypatch.setattr(run, "BATCH", 2)
    for number in range(7):
        enqueue_and_claim("jobs", number).reject("Broken")
        clock.advance(number % 2)

    answer(operator, ask(operator, "purge"))

    assert DeadLetter.objects.count() == 0
