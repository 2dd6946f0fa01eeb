"""mqlite redrive."""

import pytest
from django.core.management import CommandError

from django_mqlite.models import DeadLetter
from tests.support.verbs import dead_letter, enqueue_and_claim, state_of

from .calls import answer, mqlite


def test_all_dead_letters_of_the_queue_go_back_to_work(queue, make_queue):
    make_queue("others")
    letters = [dead_letter("jobs"), dead_letter("jobs")]
    other = dead_letter("others")

    assert mqlite("redrive", "jobs") == "2 dead letters of queue jobs redriven.\n"
    assert [state_of(each) for each in letters] == ["active", "active"]
    assert state_of(other) == "dead_lettered"


def test_only_those_named_by_id(queue):
    chosen, left = dead_letter("jobs"), dead_letter("jobs")

    assert answer("redrive", "jobs", "--id", chosen.pk) == {
        "queue": "jobs",
        "redriven": 1,
        "kept": [],
    }
    assert (state_of(chosen), state_of(left)) == ("active", "dead_lettered")


def test_at_most_so_many_the_longest_dead_first(queue, clock):
    first = dead_letter("jobs")
    clock.advance(1)
    second = dead_letter("jobs")

    mqlite("redrive", "jobs", "--limit", 1)

    assert (state_of(first), state_of(second)) == ("active", "dead_lettered")


@pytest.mark.parametrize("age", ["3600", "60m", "1h", "1.0h"])
def test_only_those_dead_for_so_long(queue, clock, age):
    old = dead_letter("jobs")
    clock.advance(3_600)
    new = dead_letter("jobs")

    mqlite("redrive", "jobs", "--older-than", age)

    assert (state_of(old), state_of(new)) == ("active", "dead_lettered")


def test_an_id_that_is_no_dead_letter_of_the_queue_stops_all_of_it(queue, make_queue):
    make_queue("others")
    mine, other = dead_letter("jobs"), dead_letter("others")

    with pytest.raises(CommandError, match=rf"'jobs': #{other.pk}, #99\. Nothing was done"):
        mqlite("redrive", "jobs", "--id", mine.pk, other.pk, 99)

    assert state_of(mine) == "dead_lettered"


def test_what_is_no_dead_letter_is_none_of_its_business(queue):
    message = enqueue_and_claim("jobs", 1)

    mqlite("redrive", "jobs")

    assert state_of(message) == "locked"


def test_redrive_by_error_class_leaves_the_others_dead(queue):
    for error in (KeyError("id"), TimeoutError()):
        enqueue_and_claim("jobs").reject("Broken", error=error)

    assert (
        mqlite("redrive", "jobs", "--error-class", "KeyError")
        == "1 dead letter of queue jobs redriven.\n"
    )
    assert [letter.error_class for letter in DeadLetter.objects.all()] == ["TimeoutError"]
