"""Every public verb refuses arguments of the wrong type or range before anything is written."""

import enum
import inspect
import math

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.utils.safestring import SafeString

from django_mqlite import enqueue
from django_mqlite.exceptions import MqliteError
from django_mqlite.models import DeadLetter, Message, Queue, Subscription
from tests.support.verbs import claim_one, dead_letter


class Number(enum.IntEnum):
    ONE = 1


VALUES = {
    "None": None,
    "empty text": "",
    "text": "1",
    "float": 1.5,
    "bool": True,
    "nan": math.nan,
    "infinity": math.inf,
    "2**63": 2**63,
    "-2**63 - 1": -(2**63) - 1,
    "10**5000": 10**5000,
    "-1": -1,
    "bytes": b"x",
    "list": [],
    "list of None": [None],
    "list of text": ["1"],
    "list of lists": [[]],
    "list of 2**63": [2**63],
    "dict": {},
    "object": object(),
    "surrogate": "\ud800",
    "NUL": "a\x00b",
    "long text": "x" * 2000,
    "subclass of str": SafeString("jobs"),
    "subclass of int": Number.ONE,
}


def message(queue):
    enqueue(str(queue), None)
    return claim_one(queue)


CALLS = {
    "claim": (lambda q: Message.objects.claim, {"queue": "jobs"}),
    "claim_deferred": (lambda q: Message.objects.claim_deferred, {"queue": "jobs", "ids": [1]}),
    "claim_and_delete": (lambda q: Message.objects.claim_and_delete, {"queue": "jobs"}),
    "complete_many": (lambda q: Message.objects.complete_many, {"messages": []}),
    "renew_many": (lambda q: Message.objects.renew_many, {"messages": []}),
    "cancel": (lambda q: Message.objects.cancel, {"id": 1}),
    "run_now": (lambda q: Message.objects.run_now, {"id": 1}),
    "release": (lambda q: Message.objects.release, {"id": 1, "seen": "x"}),
    "explain": (lambda q: Message.objects.explain, {"id": 1}),
    "peek": (lambda q: Message.objects.peek, {"queue": "jobs"}),
    "find": (lambda q: Message.objects.find, {}),
    "arrivals": (lambda q: Message.objects.arrivals, {"after": 0}),
    "enqueue": (lambda q: Message.objects.enqueue, {"queue": "jobs", "data": 1}),
    "enqueue_many": (lambda q: Message.objects.enqueue_many, {"queue": "jobs", "items": []}),
    "publish": (lambda q: Message.objects.publish, {"topic": "jobs", "data": 1}),
    "matching": (lambda q: DeadLetter.objects.matching, {"queue": "jobs"}),
    "redrive": (lambda q: DeadLetter.objects.redrive, {"ids": [1]}),
    "redrive_queue": (lambda q: DeadLetter.objects.redrive_queue, {"queue": "jobs"}),
    "purge": (lambda q: DeadLetter.objects.purge, {"ids": [1]}),
    "purge_queue": (lambda q: DeadLetter.objects.purge_queue, {"queue": "jobs", "limit": 1}),
    "peek at dead letters": (lambda q: DeadLetter.objects.peek, {"queue": "jobs"}),
    "create_queue": (lambda q: Queue.objects.create_queue, {"name": "jobs"}),
    "configure": (lambda q: Queue.objects.configure, {"name": "jobs"}),
    "named": (lambda q: Queue.objects.named, {"name": "jobs"}),
    "subscribe": (
        lambda q: Subscription.objects.subscribe,
        {"topic": "orders", "subscription": "mails"},
    ),
    "unsubscribe": (lambda q: Subscription.objects.unsubscribe, {"subscription": "mails"}),
    "abandon": (lambda q: message(q).abandon, {}),
    "reject": (lambda q: message(q).reject, {"reason": "Broken"}),
    "renew": (lambda q: message(q).renew, {}),
}
OPTIONS = {
    "enqueue": (
        "delay", "visible_at", "ttl", "priority", "group_id", "max_delivery_count", "message_id",
        "correlation_id", "reply_to", "subject", "content_type", "properties",
    ),
    "create_queue": ("lock_duration", "ordering_mode", "dlq_max_count", "dead_letter_on_expire"),
}  # fmt: skip
ANYTHING = {("enqueue", "data"), ("publish", "data"), ("redrive_queue", "progress"),
            ("purge_queue", "progress"), ("purge_queue", "everything")}  # fmt: skip


def cases():
    for verb, (bound, _) in CALLS.items():
        manager = {"abandon": Message.abandon, "reject": Message.reject, "renew": Message.renew}
        function = manager.get(verb) or bound(None)
        names = [
            name
            for name, parameter in inspect.signature(function).parameters.items()
            if name != "self" and parameter.kind is not inspect.Parameter.VAR_KEYWORD
        ]
        for name in [*names, *OPTIONS.get(verb, ())]:
            if (verb, name) not in ANYTHING:
                yield pytest.param(verb, name, id=f"{verb}({name})")


@pytest.mark.rule("1.8")
@pytest.mark.parametrize(("verb", "name"), list(cases()))
def test_argument_of_any_value_is_accepted_or_refused_by_name(clock, queue, verb, name):
    bound, arguments = CALLS[verb]
    assert dead_letter(queue).pk == 1

    for label, value in VALUES.items():
        error = error_of(bound(queue), {**arguments, name: value})
        if isinstance(error, MqliteError | ImproperlyConfigured | None):
            continue
        assert type(error) in (ValueError, TypeError), (label, error)
        assert name in str(error) or "queue name" in str(error), (label, error)
        assert len(str(error)) < 500, label


REFUSED = {
    "claim": {"limit": True, "worker": 5, "attempt_id": "\ud800"},
    "claim_deferred": {"ids": ["1"]},
    "claim_and_delete": {"queue": None},
    "complete_many": {"messages": [None]},
    "renew_many": {"messages": [None]},
    "cancel": {"id": "1"},
    "run_now": {"id": 1.5},
    "release": {"seen": None, "reason": "a\x00b"},
    "explain": {"id": None},
    "peek": {"queue": 5},
    "find": {"state": 5, "text": 5, "after": "x"},
    "arrivals": {"after": True},
    "redrive": {"ids": "1", "rate": math.nan},
    "purge": {"ids": [None]},
    "named": {"name": b"jobs"},
    "unsubscribe": {"subscription": "\ud800"},
    "abandon": {"delay": math.inf},
}


@pytest.mark.parametrize(
    ("verb", "name"), [(verb, name) for verb, values in REFUSED.items() for name in values]
)
def test_invalid_argument_is_refused_by_name(clock, queue, verb, name):
    bound, arguments = CALLS[verb]
    assert dead_letter(queue).pk == 1

    error = error_of(bound(queue), {**arguments, name: REFUSED[verb][name]})

    assert type(error) in (ValueError, TypeError)
    assert name in str(error)


def error_of(function, arguments):
    try:
        function(**arguments)
    except Exception as error:  # noqa: BLE001 - the test checks which
        return error
    return None


@pytest.mark.rule("1.9")
@pytest.mark.parametrize(
    ("charset", "text"),
    [
        ("shift_jis", "¥100"),
        ("idna", "Straße"),
        ("raw_unicode_escape", "\\u00e9"),
        ("rot13", "text"),
        ("latin-1", "€"),
        ("undefined", "text"),
    ],
)
def test_charset_that_changes_a_text_is_refused(queue, charset, text):
    with pytest.raises(ValueError, match=r"data|charset"):
        enqueue("jobs", text, content_type=f"text/plain; charset={charset}")

    assert not Message.objects.exists()


@pytest.mark.rule("1.9")
@pytest.mark.parametrize("charset", ["utf-8", "utf-16", "latin-1", "shift_jis"])
def test_charset_that_keeps_a_text_is_accepted(queue, charset):
    message = enqueue("jobs", "plain", content_type=f"text/plain; charset={charset}")

    assert Message.objects.get(pk=message.pk).data == "plain"


def test_number_of_too_many_digits_is_refused_as_such(queue):
    with pytest.raises(ValueError, match=r"data\['a'\] has too many digits"):
        enqueue("jobs", {"a": 10**5000})


def test_subclasses_of_str_and_int_are_stored_as_plain_values(queue):
    Queue.objects.create_queue(SafeString("mails"), max_delivery_count=Number.ONE)
    Queue.objects.configure(SafeString("mails"), max_delivery_count=Number.ONE)
    Subscription.objects.subscribe(SafeString("orders"), SafeString("copies"))

    assert Queue.objects.named(SafeString("mails")).max_delivery_count == 1
    assert set(Queue.objects.values_list("name", flat=True)) == {"jobs", "mails", "copies"}
