"""mqlite errors."""

import pytest
from django.core.management import CommandError

from tests.support.verbs import enqueue_and_claim

from .calls import answer, mqlite


def test_errors_counts_dead_letters_by_class(queue, make_queue):
    make_queue("other")
    for error in (KeyError("id"), TimeoutError(), KeyError("name")):
        enqueue_and_claim("jobs").reject("Broken", error=error)
    enqueue_and_claim("other").reject("Invalid")

    assert answer("errors", "jobs") == {
        "errors": [
            {"error_class": "KeyError", "reason": None, "letters": 2},
            {"error_class": "TimeoutError", "reason": None, "letters": 1},
        ]
    }
    assert "Invalid" in mqlite("errors")
    assert "TimeoutError" not in mqlite("errors", "--limit", 1)


def test_errors_without_dead_letters_says_so(queue):
    assert mqlite("errors") == "There are no dead letters.\n"


def test_errors_of_an_unknown_queue_is_refused(queue):
    with pytest.raises(CommandError, match="nope"):
        mqlite("errors", "nope")
