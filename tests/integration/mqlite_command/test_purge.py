"""mqlite purge."""

import io
import json

import pytest
from django.core.management import CommandError, call_command

from django_mqlite.models import DeadLetter, Message
from tests.support.verbs import dead_letter, enqueue_and_claim, state_of

from .calls import Terminal, answer, mqlite


def test_after_a_yes_they_are_gone(queue, typing):
    letter = dead_letter("jobs")
    typing("yes\n")

    assert mqlite("purge", "jobs", "--all") == "1 dead letter of queue jobs purged.\n"
    assert state_of(letter) == "gone"


@pytest.mark.parametrize("text", ["n\n", "\n", "", "yess\n"])
def test_anything_but_a_yes_leaves_them(queue, typing, text):
    letter = dead_letter("jobs")
    typing(text)

    with pytest.raises(CommandError, match=r"^Nothing was done\.$"):
        mqlite("purge", "jobs", "--all")

    assert state_of(letter) == "dead_lettered"


def test_the_question_names_the_count_and_the_queue_and_not_on_stdout(queue, typing):
    dead_letter("jobs")
    dead_letter("jobs")
    typing("y\n")
    stdout, stderr = io.StringIO(), io.StringIO()

    call_command("mqlite", "purge", "jobs", "--limit=1", "--json", stdout=stdout, stderr=stderr)

    assert "Delete 1 dead letter of queue jobs? This is permanent. [y/N] " in stderr.getvalue()
    assert json.loads(stdout.getvalue()) == {"queue": "jobs", "purged": 1, "kept": []}


@pytest.mark.parametrize("deaths", [0, 1])
def test_without_a_terminal_it_needs_yes(queue, deaths):
    letters = [dead_letter("jobs") for _ in range(deaths)]

    with pytest.raises(CommandError, match=r"without a terminal: pass --yes"):
        mqlite("purge", "jobs", "--all")

    assert all(state_of(letter) == "dead_lettered" for letter in letters)


def test_with_yes_nobody_is_asked(queue):
    dead_letter("jobs")

    assert answer("purge", "jobs", "--all", "--yes") == {"queue": "jobs", "purged": 1, "kept": []}


def test_with_nothing_to_purge_nobody_is_asked(queue, typing):
    typing("")

    assert mqlite("purge", "jobs", "--all") == "0 dead letters of queue jobs purged.\n"


def test_only_those_named_by_id(queue):
    chosen, left = dead_letter("jobs"), dead_letter("jobs")

    mqlite("purge", "jobs", "--id", chosen.pk, chosen.pk, "--yes")

    assert (state_of(chosen), state_of(left)) == ("gone", "dead_lettered")


def test_age_and_limit_together(queue, clock):
    oldest, old = dead_letter("jobs"), dead_letter("jobs")
    clock.advance(60)
    new = dead_letter("jobs")

    mqlite("purge", "jobs", "--older-than", "1m", "--limit", 1, "--yes")

    assert [state_of(each) for each in (oldest, old, new)] == [
        "gone",
        "dead_lettered",
        "dead_lettered",
    ]


def test_what_dies_while_the_question_stands_is_left(queue, clock, monkeypatch):
    agreed_to = dead_letter("jobs")
    late = []

    class Slow(Terminal):
        def readline(self, *_args):
            clock.advance(1)
            late.append(dead_letter("jobs"))
            return "y\n"

    monkeypatch.setattr("sys.stdin", Slow())

    mqlite("purge", "jobs", "--all")

    assert [state_of(each) for each in (agreed_to, *late)] == ["gone", "dead_lettered"]


def test_live_messages_are_never_purged(queue):
    message = Message.objects.enqueue("jobs", 1)

    mqlite("purge", "jobs", "--all", "--yes")

    assert state_of(message) == "active"


def test_purge_by_error_class_leaves_the_others_dead(queue):
    for error in (KeyError("id"), TimeoutError()):
        enqueue_and_claim("jobs").reject("Broken", error=error)

    assert (
        mqlite("purge", "jobs", "--error-class", "KeyError", "--yes")
        == "1 dead letter of queue jobs purged.\n"
    )
    assert [letter.error_class for letter in DeadLetter.objects.all()] == ["TimeoutError"]
