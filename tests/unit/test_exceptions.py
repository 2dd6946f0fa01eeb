"""Errors name the thing and the way out."""

import copy
import pickle
from datetime import timedelta
from functools import partial

import pytest

import django_mqlite
from django_mqlite import exceptions
from django_mqlite.task_backend.compat import ReturnValueRefused, UnknownTask


def through_pickle(error, *, protocol):
    return pickle.loads(pickle.dumps(error, protocol=protocol))


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

    assert (error.queue, error.id, error.verb) == ("emails", 17, "complete")
    assert str(error).startswith("Cannot complete message #17 of queue 'emails'")


def test_a_rejection_says_reason_and_description():
    error = exceptions.Reject("UnknownArticle", "no article 17")

    assert (error.reason, error.description) == ("UnknownArticle", "no article 17")
    assert str(error) == "UnknownArticle: no article 17"
    assert str(exceptions.Reject("UnknownArticle")) == "UnknownArticle"


def test_a_retry_has_a_delay_of_zero_unless_told():
    assert exceptions.Retry().delay == 0
    assert exceptions.Retry("later", delay=timedelta(hours=1)).delay == timedelta(hours=1)


class Later(exceptions.Retry):
    def __init__(self, moment: str, *, urgent: bool) -> None:
        self.moment = moment
        super().__init__(f"at {moment}", delay=60)


SAMPLES = [
    exceptions.QueueNotFound("email", ["emails"]),
    exceptions.MessageTooLarge(5, 4),
    exceptions.GroupRequired("jobs", dead_letter=3),
    exceptions.PriorityRefused("jobs"),
    exceptions.DuplicateConflict("jobs", "key", 7),
    exceptions.NameConflict("jobs", "a topic"),
    exceptions.TopicNotFound("orders", ["order"]),
    exceptions.LockLost("jobs", 17, "complete"),
    exceptions.TransactionRefused(),
    exceptions.NoHandler("jobs", None),
    exceptions.NothingHasRun(iter(())),
    exceptions.HandlersNotImported("shop.handlers"),
    exceptions.HandlerThreadDied(),
    exceptions.Interrupted("stopped"),
    exceptions.DeliveryFailed("broken"),
    exceptions.DeadLettered("broken"),
    exceptions.TransactionLeftOpen(["default"]),
    exceptions.LeaseExpired("late"),
    exceptions.LeaseReleased("by hand"),
    exceptions.WorkerDied("killed"),
    exceptions.MessageReferenced("complete", ["orders"]),
    exceptions.SchemaVersionMismatch("9", "1"),
    exceptions.Reject("UnknownArticle", "no article 17"),
    exceptions.Retry("later", delay=timedelta(hours=1)),
    UnknownTask("shop.tasks.gone", "no module"),
    ReturnValueRefused("a set"),
    Later("noon", urgent=True),
]


@pytest.mark.parametrize("error", SAMPLES, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize(
    "copied",
    [copy.copy, *(partial(through_pickle, protocol=n) for n in range(pickle.HIGHEST_PROTOCOL + 1))],
    ids=["copy", *(f"pickle {n}" for n in range(pickle.HIGHEST_PROTOCOL + 1))],
)
def test_error_survives_pickling_and_copying(error, copied):
    error.add_note("seen in a test")

    restored = copied(error)

    assert type(restored) is type(error)
    assert (str(restored), restored.args) == (str(error), error.args)
    assert vars(restored) == vars(error)


def test_every_error_is_pickled_in_a_test():
    """Also those that a module of its own defines, as far as somebody else may catch them."""
    classes = {
        each
        for each in vars(exceptions).values()
        if isinstance(each, type) and issubclass(each, exceptions.Restorable)
    }

    assert classes - {exceptions.Restorable, exceptions.MqliteError} <= set(map(type, SAMPLES))


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
