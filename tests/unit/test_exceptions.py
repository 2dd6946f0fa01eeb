"""The texts of the errors, and their attributes after pickling."""

import copy
import pickle
import re
from datetime import timedelta
from functools import partial

import pytest

import django_mqlite
from django_mqlite import exceptions
from django_mqlite.task_backend.compat import ReturnValueRefused, UnknownTask


def through_pickle(error, *, protocol):
    return pickle.loads(pickle.dumps(error, protocol=protocol))


@pytest.mark.parametrize(
    ("error", "attributes", "text"),
    [
        (
            exceptions.QueueNotFound("email", ["emails", "orders"]),
            {"queue": "email"},
            r"'email'.*Did you mean 'emails'\?.*MQLITE\['QUEUES'\]",
        ),
        (exceptions.QueueNotFound("xyz", ["emails"]), {"queue": "xyz"}, r"^((?!Did you mean).)*$"),
        (
            exceptions.LockLost("emails", 17, "complete"),
            {"queue": "emails", "id": 17, "verb": "complete"},
            r"^Cannot complete message #17 of queue 'emails'",
        ),
        (
            exceptions.Reject("UnknownArticle", "no article 17"),
            {"reason": "UnknownArticle", "description": "no article 17"},
            r"^UnknownArticle: no article 17$",
        ),
        (exceptions.Reject("UnknownArticle"), {"description": ""}, r"^UnknownArticle$"),
        (exceptions.Retry(), {"delay": 0}, ""),
        (
            exceptions.Retry("later", delay=timedelta(hours=1)),
            {"delay": timedelta(hours=1)},
            "later",
        ),
    ],
)
def test_error_has_its_facts_in_attributes_and_text(error, attributes, text):
    assert {name: getattr(error, name) for name in attributes} == attributes
    assert re.search(text, str(error), re.DOTALL)


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
    exceptions.QueueNotDeletable("jobs", "it has work"),
    exceptions.TopicNotFound("orders", ["order"]),
    exceptions.ScheduleNotFound("nightly", ["nightly-report"]),
    exceptions.AccessKeyExists("shop"),
    exceptions.AccessKeyNotFound("shp", ["shop"]),
    exceptions.LockLost("jobs", 17, "complete"),
    exceptions.TransactionRefused(),
    exceptions.NoHandler("jobs", None),
    exceptions.NothingHasRun(iter(())),
    exceptions.HandlersNotImported("shop.handlers"),
    exceptions.HandlerThreadDied(),
    exceptions.Discarded("stopped"),
    exceptions.Interrupted("stopped"),
    exceptions.DeliveryFailed("broken"),
    exceptions.DeadLettered("broken"),
    exceptions.TransactionLeftOpen(["default"]),
    exceptions.LeaseExpired("late"),
    exceptions.LeaseReleased("by hand"),
    exceptions.WorkerDied("killed"),
    exceptions.MessageReferenced("complete", ["orders"]),
    exceptions.UniqueKeyTaken(7, "report", 9),
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


def test_every_error_class_is_among_the_samples():
    classes = {
        value
        for value in vars(exceptions).values()
        if isinstance(value, type) and issubclass(value, exceptions.Restorable)
    }

    assert classes - {exceptions.Restorable, exceptions.MqliteError} <= set(map(type, SAMPLES))


ERRORS = [
    name
    for name in django_mqlite.__all__
    if isinstance(getattr(django_mqlite, name), type)
    and issubclass(getattr(django_mqlite, name), Exception)
]


@pytest.mark.parametrize("name", ERRORS)
def test_public_error_is_an_mqlite_error_or_ends_a_delivery(name):
    error = getattr(django_mqlite, name)

    assert issubclass(error, django_mqlite.MqliteError) or name in ("Reject", "Retry")
    assert error is getattr(exceptions, name)
