"""mqlite errors, redrive and purge."""

import io
import json

import pytest
from django.core.management import CommandError

from django_mqlite.models import DeadLetter, Message
from tests.support.verbs import dead_letter, enqueue_and_claim, state_of

from .calls import answer, mqlite


def test_errors_counts_dead_letters_by_class(queue, make_queue):
    make_queue("other")
    for error in (KeyError("id"), TimeoutError(), KeyError("name")):
        enqueue_and_claim("jobs").reject("Broken", error=error)
    enqueue_and_claim("other").reject("Invalid")

    assert answer("errors", "jobs") == {
        "errors": [
            {"error_class": "KeyError", "reason": None, "dead_letters": 2},
            {"error_class": "TimeoutError", "reason": None, "dead_letters": 1},
        ]
    }
    assert "Invalid" in mqlite("errors")
    assert "TimeoutError" not in mqlite("errors", "--limit", 1)


SELECTIONS = [
    ((), {"first", "lost", "new"}),
    (("--id", "1", "1"), {"first"}),
    (("--limit", "1"), {"first"}),
    *((("--older-than", age), {"first", "lost"}) for age in ("3600", "60m", "1h", "1.0h")),
    (("--older-than", "1h", "--limit", "1"), {"first"}),
    (("--reason", "Lost"), {"lost"}),
    (("--error-class", "KeyError"), {"first"}),
]


@pytest.fixture
def letters(queue, make_queue, clock):
    """Dead letters of two ages and two reasons, and messages that no command may touch."""
    make_queue("others")
    first, lost = enqueue_and_claim("jobs"), enqueue_and_claim("jobs")
    first.reject("Broken", error=KeyError("id"))
    lost.reject("Lost")
    clock.advance(3_600)
    letters = {"first": first, "lost": lost, "new": dead_letter("jobs")}
    others = {"other": dead_letter("others"), "locked": enqueue_and_claim("jobs")}
    return letters | others


@pytest.mark.parametrize(("selection", "selected"), SELECTIONS)
@pytest.mark.parametrize(
    ("command", "done", "state"), [("redrive", "redriven", "active"), ("purge", "purged", "gone")]
)
def test_options_select_dead_letters(letters, command, done, state, selection, selected):
    before = {name: state_of(letter) for name, letter in letters.items()}
    everything = ("--all",) if command == "purge" else ()
    options = (*(selection or everything), "--yes")

    document = answer(command, "jobs", *options)

    assert document == {"queue": "jobs", done: len(selected), "kept": []}
    after = {name: state_of(letter) for name, letter in letters.items()}
    assert after == before | dict.fromkeys(selected, state)


def test_text_counts_the_dead_letters(letters, reply):
    assert mqlite("redrive", "jobs", "--limit", 2) == "2 dead letters of queue jobs redriven.\n"
    assert mqlite("purge", "jobs", "--all", "--yes") == "1 dead letter of queue jobs purged.\n"
    assert mqlite("redrive", "jobs", "--yes") == "0 dead letters of queue jobs redriven.\n"

    reply("")  # there is nothing to confirm
    assert mqlite("purge", "jobs", "--all") == "0 dead letters of queue jobs purged.\n"


@pytest.mark.parametrize("command", [("redrive",), ("purge", "--yes")])
def test_ids_of_other_messages_change_nothing(letters, command):
    name, *options = command

    with pytest.raises(CommandError, match=r"'jobs': #4, #5, #99\. Nothing was done"):
        mqlite(name, "jobs", *options, "--id", 1, 4, 5, 99)

    assert state_of(letters["first"]) == "dead_lettered"


def test_redrive_moves_messages_into_another_queue_at_a_rate(letters):
    answer("redrive", "jobs", "--limit", 2, "--into", "others", "--rate", 2)

    moved = Message.objects.filter(queue="others").exclude(state="dead_lettered").order_by("pk")
    first, second = moved
    assert (state_of(letters["first"]), state_of(letters["lost"])) == ("gone", "gone")
    assert (first.state, second.state) == ("active", "scheduled")


def test_redrive_of_a_whole_queue_asks_with_count_and_destination(letters, reply):
    reply("y\n")
    stdout, stderr = io.StringIO(), io.StringIO()

    mqlite("redrive", "jobs", "--into", "others", stdout=stdout, stderr=stderr)

    question = "Redrive all 3 dead letters of queue jobs into queue others? [y/N] "
    assert stderr.getvalue() == question
    assert stdout.getvalue() == "3 dead letters of queue jobs redriven.\n"


def test_redrive_without_a_yes_changes_nothing(letters, reply):
    reply("n\n")

    with pytest.raises(CommandError, match=r"^Nothing was done\.$"):
        mqlite("redrive", "others")

    assert DeadLetter.objects.count() == 4


@pytest.mark.parametrize(
    "selection", [("--limit", 9), ("--reason", "Broken"), ("--older-than", "1s"), ("--id", 1)]
)
def test_redrive_of_a_selection_does_not_ask(letters, clock, selection):
    clock.advance(1)

    assert answer("redrive", "jobs", *selection)["redriven"] > 0


def test_redrive_leaves_letters_that_came_during_the_question(queue, clock, reply):
    confirmed, late = dead_letter("jobs"), enqueue_and_claim("jobs")
    clock.advance(1)
    reply("y\n", meanwhile=lambda: late.reject("Broken"))

    mqlite("redrive", "jobs")

    assert (state_of(confirmed), state_of(late)) == ("active", "dead_lettered")


@pytest.mark.parametrize("text", ["y\n", "YES\n"])
def test_purge_asks_on_stderr_with_count_and_queue(letters, reply, text):
    reply(text)
    stdout, stderr = io.StringIO(), io.StringIO()

    mqlite("purge", "jobs", "--limit=2", "--json", stdout=stdout, stderr=stderr)

    question = "Delete 2 dead letters of queue jobs? This is permanent. [y/N] "
    assert stderr.getvalue() == question
    assert json.loads(stdout.getvalue())["purged"] == 2


@pytest.mark.parametrize("text", ["n\n", "\n", "", "yess\n"])
def test_purge_without_a_yes_deletes_nothing(letters, reply, text):
    reply(text)

    with pytest.raises(CommandError, match=r"^Nothing was done\.$"):
        mqlite("purge", "jobs", "--all")

    assert DeadLetter.objects.count() == 4


def test_purge_leaves_letters_that_came_during_the_question(queue, clock, reply):
    confirmed, late = dead_letter("jobs"), enqueue_and_claim("jobs")
    clock.advance(1)
    reply("y\n", meanwhile=lambda: late.reject("Broken"))

    mqlite("purge", "jobs", "--all")

    assert (state_of(confirmed), state_of(late)) == ("gone", "dead_lettered")
