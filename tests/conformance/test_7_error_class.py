"""Dead letters are counted and selected by the class of their last error."""

import json

import pytest

from django_mqlite import QueueNotFound
from django_mqlite.models import DeadLetter, Message
from django_mqlite.types import ErrorCount
from tests.support.verbs import claim_one, enqueue_and_claim, overwrite

pytestmark = pytest.mark.rule("7.5")


class Refused(Exception):
    pass


def dead_of(*errors, queue="jobs", reason="Broken"):
    """Return a dead letter whose deliveries ended with these errors."""
    message = Message.objects.enqueue(queue, None, max_delivery_count=100)
    for error in errors[:-1]:
        claim_one(queue).abandon(delay=0, error=error)
    claim_one(queue).reject(reason, error=errors[-1] if errors else None)
    return message.pk


def error_class_of(id):
    return Message.objects.values_list("error_class", flat=True).get(pk=id)


@pytest.mark.parametrize(
    ("errors", "expected"),
    [
        ([KeyError("id")], "KeyError"),
        ([Refused("no")], "Refused"),
        ([KeyError("id"), Refused("no")], "Refused"),
        (["only a text"], None),
        ([], None),
    ],
)
def test_error_class_names_the_last_error(queue, errors, expected):
    assert error_class_of(dead_of(*errors)) == expected


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ('[{"class": "a.a.a"}]', "a"),
        ('[{"class": 5}]', "5"),
        ("[1]", None),
        ("7", None),
        ('{"class": "KeyError"}', None),
    ],
)
def test_error_class_of_a_foreign_document_is_a_text_or_nothing(queue, document, expected):
    message = Message.objects.enqueue("jobs", None)
    overwrite(Message.objects.filter(pk=message.pk), errors=json.loads(document))

    assert error_class_of(message.pk) == expected


def test_error_class_of_a_retrying_message_names_the_last_error(queue):
    enqueue_and_claim("jobs").abandon(error=KeyError("id"))

    assert Message.objects.get().error_class == "KeyError"


def test_dead_letters_are_counted_by_error_class(queue, make_queue):
    make_queue("other")
    for error in (KeyError(1), Refused(), KeyError(2)):
        dead_of(error)
    dead_of(KeyError(3), queue="other")
    dead_of(reason="Invalid", queue="other")

    assert DeadLetter.objects.count_by_error() == [
        ErrorCount("KeyError", None, 3),
        ErrorCount(None, "Invalid", 1),
        ErrorCount("Refused", None, 1),
    ]
    assert DeadLetter.objects.count_by_error("jobs", limit=1) == [ErrorCount("KeyError", None, 2)]
    with pytest.raises(QueueNotFound):
        DeadLetter.objects.count_by_error("nope")


def test_redrive_by_error_class_leaves_the_others_dead(queue):
    chosen = [dead_of(KeyError(1)), dead_of(Refused(), KeyError(2))]
    other = dead_of(KeyError(3), Refused())

    assert DeadLetter.objects.redrive_queue("jobs", error_class="KeyError") == 2

    assert list(DeadLetter.objects.values_list("pk", flat=True)) == [other]
    assert DeadLetter.objects.matching("jobs", error_class="Refused").count() == 1
    assert set(Message.objects.filter(state="active").values_list("pk", flat=True)) == set(chosen)


def test_purge_by_error_class_leaves_the_others_dead(queue):
    dead_of(KeyError(1))
    other = dead_of(Refused())

    assert DeadLetter.objects.purge_queue("jobs", error_class="KeyError") == 1

    assert list(Message.objects.values_list("pk", flat=True)) == [other]
