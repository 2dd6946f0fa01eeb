"""Errors name the thing and the way out."""

from datetime import timedelta

import pytest

import django_mqlite
from django_mqlite import exceptions


def test_an_unknown_queue_is_named_with_the_one_that_was_meant():
    error = exceptions.QueueNotFound("email", ["emails", "orders"])

    assert error.queue == "email"
    assert "'email'" in str(error)
    assert "Did you mean 'emails'?" in str(error)
    assert "MQLITE['QUEUES']" in str(error)


def test_an_unknown_queue_like_no_other_gets_no_guess():
    assert "Did you mean" not in str(exceptions.QueueNotFound("xyz", ["emails"]))


def test_a_lost_lock_names_message_queue_and_verb():
    error = exceptions.LockLost("emails", 17, "complete")

    assert (error.queue, error.message_id, error.verb) == ("emails", 17, "complete")
    assert str(error).startswith("Cannot complete message #17 of queue 'emails'")


def test_a_rejection_says_reason_and_description():
    error = exceptions.Reject("UnknownArticle", "no article 17")

    assert (error.reason, error.description) == ("UnknownArticle", "no article 17")
    assert str(error) == "UnknownArticle: no article 17"
    assert str(exceptions.Reject("UnknownArticle")) == "UnknownArticle"


def test_a_retry_has_a_delay_of_zero_unless_told():
    assert exceptions.Retry().delay == 0
    assert exceptions.Retry("later", delay=timedelta(hours=1)).delay == timedelta(hours=1)


ERRORS = [
    name
    for name in django_mqlite.__all__
    if isinstance(getattr(django_mqlite, name), type)
    and issubclass(getattr(django_mqlite, name), Exception)
]


@pytest.mark.parametrize("name", ERRORS)
def test_every_public_error_is_an_mqlite_error_or_steers_a_handler(name):
    error = getattr(django_mqlite, name)

    assert issubclass(error, django_mqlite.MqliteError) or name in ("Reject", "Retry")
    assert error is getattr(exceptions, name)
