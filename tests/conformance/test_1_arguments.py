"""1.3, 1.8 and 1.9 Every verb validates its arguments before it writes anything."""

import enum
import inspect
import math
from datetime import timedelta

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.utils.safestring import SafeString

from django_mqlite import enqueue
from django_mqlite.exceptions import MqliteError, QueueNotFound
from django_mqlite.models import DeadLetter, Message, Queue, Subscription
from tests.docs.test_reference import NAMES
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


CALLS = {
    "Message.objects.claim": {"queue": "jobs"},
    "Message.objects.claim_deferred": {"queue": "jobs", "ids": [1]},
    "Message.objects.claim_and_delete": {"queue": "jobs"},
    "Message.objects.complete_many": {"messages": []},
    "Message.objects.renew_many": {"messages": []},
    "Message.objects.cancel": {"id": 1},
    "Message.objects.run_now": {"id": 1},
    "Message.objects.release": {"id": 1, "seen": "x"},
    "Message.objects.discard": {"id": 1},
    "Message.objects.discard_many": {"ids": [1]},
    "Message.objects.discard_queue": {"queue": "jobs"},
    "Message.objects.activate": {"id": 1},
    "Message.objects.activate_many": {"ids": [1]},
    "Message.objects.activate_queue": {"queue": "jobs"},
    "Message.objects.empty_queue": {"queue": "jobs"},
    "Message.objects.prune_completed": {"limit": 1},
    "Message.objects.explain": {"id": 1},
    "Message.objects.peek": {"queue": "jobs"},
    "Message.objects.find": {},
    "Message.objects.arrivals": {"after": 0},
    "Message.objects.enqueue": {"queue": "jobs", "data": 1},
    "Message.objects.enqueue_many": {"queue": "jobs", "items": []},
    "Message.objects.publish": {"topic": "jobs", "data": 1},
    "Message.objects.publish_many": {"topic": "jobs", "items": []},
    "Message.objects.browse": {"queue": "jobs"},
    "DeadLetter.objects.matching": {"queue": "jobs"},
    "DeadLetter.objects.redrive": {"ids": [1]},
    "DeadLetter.objects.redrive_queue": {"queue": "jobs"},
    "DeadLetter.objects.redrive_with": {"id": 1, "data": 1},
    "DeadLetter.objects.purge": {"ids": [1]},
    "DeadLetter.objects.purge_queue": {"queue": "jobs", "limit": 1},
    "DeadLetter.objects.peek": {"queue": "jobs"},
    "DeadLetter.objects.count_by_error": {},
    "Queue.objects.create_queue": {"name": "jobs"},
    "Queue.objects.configure": {"name": "jobs"},
    "Queue.objects.create_or_configure": {"name": "jobs"},
    "Queue.objects.named": {"name": "jobs"},
    "Queue.objects.limits": {"name": "jobs"},
    "Queue.objects.delete_queue": {"name": "jobs"},
    "Queue.objects.stats": {},
    "Queue.objects.stats_of": {"name": "jobs"},
    "Queue.objects.overview": {},
    "Queue.objects.sync": {},
    "Subscription.objects.subscribe": {"topic": "orders", "subscription": "mails"},
    "Subscription.objects.unsubscribe": {"subscription": "mails"},
    "Message.complete": {},
    "Message.abandon": {},
    "Message.reject": {"reason": "Broken"},
    "Message.defer": {},
    "Message.renew": {},
    "Message.set_progress": {"fraction": 0.5},
    "Message.cancel": {},
    "Message.explain": {},
    "Queue.pause": {},
    "Queue.resume": {},
}
"""Valid arguments of each verb."""
BY_KEY = {"Message.cancel", "Message.explain", "Queue.pause", "Queue.resume"}
"""The verbs of an instance that need its primary key and no lease. The key is an argument too."""
OPTIONS = {
    "Message.objects.enqueue": (
        "delay", "visible_at", "ttl", "priority", "group_id", "max_delivery_count", "message_id",
        "correlation_id", "reply_to", "subject", "content_type", "properties",
    ),
    "Queue.objects.create_queue": (
        "lock_duration", "ordering_mode", "dlq_max_count", "dead_letter_on_expire",
    ),
}  # fmt: skip
ANYTHING = {
    ("Message.objects.discard_queue", "progress"),
    ("Message.objects.activate_queue", "progress"),
    ("Message.objects.empty_queue", "progress"),
    ("Message.objects.prune_completed", "progress"),
    ("Message.objects.prune_completed", "everything"),
    ("Message.objects.prune_completed", "dry_run"),
    ("Message.objects.enqueue", "data"),
    ("Message.objects.publish", "data"),
    ("DeadLetter.objects.redrive_queue", "progress"),
    ("DeadLetter.objects.redrive_with", "data"),
    ("DeadLetter.objects.purge_queue", "progress"),
    ("DeadLetter.objects.purge_queue", "everything"),
    ("Queue.objects.delete_queue", "everything"),
}
MODELS = {model.__name__: model for model in (Message, DeadLetter, Queue, Subscription)}


def is_of_instance(verb):
    return ".objects." not in verb


def owner_of(verb):
    """Return the manager of a verb, or the model."""
    model = MODELS[verb.partition(".")[0]]
    return model if is_of_instance(verb) else model.objects


def function_of(verb):
    return getattr(owner_of(verb), verb.rpartition(".")[2])


def call(verb, arguments):
    """Call the verb; a verb of an instance on a claimed message or the queue."""
    if not is_of_instance(verb):
        return function_of(verb)(**arguments)
    instance = Queue.objects.get(name="jobs")
    if verb.startswith("Message."):
        enqueue("jobs", None)
        instance = claim_one("jobs")
    if "pk" in arguments:
        instance.pk = arguments.pop("pk")
    return function_of(verb)(instance, **arguments)


def cases():
    for verb in CALLS:
        names = [
            name
            for name, parameter in inspect.signature(function_of(verb)).parameters.items()
            if name != "self" and parameter.kind is not inspect.Parameter.VAR_KEYWORD
        ]
        for name in [*names, *OPTIONS.get(verb, ()), *(["pk"] if verb in BY_KEY else [])]:
            if (verb, name) not in ANYTHING:
                yield pytest.param(verb, name, id=f"{verb}({name})")


def test_every_documented_verb_is_in_the_table():
    managers = {type(model.objects).__name__: f"{name}.objects" for name, model in MODELS.items()}
    verbs = {
        f"{managers.get(owner, owner)}.{member}"
        for path, members in NAMES.items()
        if (owner := path.rpartition(".")[2]) in MODELS.keys() | managers.keys()
        for member in members - {"refresh_from_db"}
    }

    async_twins = {verb for verb in verbs if inspect.iscoroutinefunction(function_of(verb))}
    assert {verb for verb in verbs if callable(function_of(verb))} - async_twins <= CALLS.keys()


@pytest.mark.rule("1.8")
@pytest.mark.parametrize(("verb", "name"), list(cases()))
def test_argument_of_any_value_is_accepted_or_refused_by_name(clock, queue, verb, name):
    assert dead_letter(queue).pk == 1

    for label, value in VALUES.items():
        error = error_of(verb, {**CALLS[verb], name: value})
        if isinstance(error, MqliteError | ImproperlyConfigured | None):
            continue
        named = {"pk": ("id must", "name must")}.get(name, (name, "queue name"))
        assert type(error) in (ValueError, TypeError), (label, error)
        assert any(words in str(error) for words in named), (label, error)
        assert len(str(error)) < 500, label


DURATIONS = [0, -1, math.nan, math.inf, 10**12, timedelta.max]
REFUSED = {
    "Message.objects.claim": {
        "limit": [0, -1, 2**63, 1.0, True, "1", None],
        "lock_duration": DURATIONS,
        "worker": [5],
        "attempt_id": ["\ud800"],
    },
    "Message.objects.claim_deferred": {"ids": [["1"]]},
    "Message.objects.claim_and_delete": {"queue": [None]},
    "Message.objects.complete_many": {"messages": [[None]]},
    "Message.objects.renew_many": {"messages": [[None]]},
    "Message.objects.cancel": {"id": ["1"]},
    "Message.objects.run_now": {"id": [1.5]},
    "Message.objects.release": {"seen": [None], "reason": ["a\x00b"]},
    "Message.objects.explain": {"id": [None]},
    "Message.objects.peek": {"queue": [5]},
    "Message.objects.find": {"state": [5], "text": [5], "after": ["x"]},
    "Message.objects.arrivals": {"after": [True]},
    "DeadLetter.objects.redrive": {"ids": ["1"]},
    "DeadLetter.objects.purge": {"ids": [[None]]},
    "Queue.objects.named": {"name": [b"jobs"]},
    "Subscription.objects.unsubscribe": {"subscription": ["\ud800"]},
    "Message.abandon": {"delay": DURATIONS[1:]},
    "Message.reject": {"reason": [""]},
    "Message.renew": {"lock_duration": DURATIONS},
}


@pytest.mark.rule("1.8")
@pytest.mark.parametrize(
    ("verb", "name"), [(verb, name) for verb, values in REFUSED.items() for name in values]
)
def test_invalid_argument_is_refused_by_name(clock, queue, verb, name):
    assert dead_letter(queue).pk == 1

    for value in REFUSED[verb][name]:
        error = error_of(verb, {**CALLS[verb], name: value})

        assert type(error) in (ValueError, TypeError), value
        assert name in str(error), value


@pytest.mark.rule("1.3")
@pytest.mark.parametrize(
    ("verb", "name"),
    [
        *((verb, "queue") for verb, arguments in CALLS.items() if "queue" in arguments),
        ("Message.objects.find", "queue"),
        ("DeadLetter.objects.redrive", "into"),
        ("DeadLetter.objects.redrive_queue", "into"),
    ],
)
def test_unknown_queue_is_refused_with_a_suggestion(clock, queue, verb, name):
    assert dead_letter(queue).pk == 1

    with pytest.raises(QueueNotFound, match="Did you mean 'jobs'") as caught:
        call(verb, {**CALLS[verb], name: "job"})

    assert caught.value.queue == "job"
    assert [message.state for message in Message.objects.all()] == ["dead_lettered"]


@pytest.mark.parametrize("verb", ["complete_many", "renew_many"])
def test_messages_of_another_database_are_refused_by_name(queue, verb):
    enqueue("jobs", None)
    message = claim_one(queue)

    with pytest.raises(ValueError, match="database 'default'"):
        getattr(Message.objects.db_manager("other"), verb)([message])


@pytest.mark.rule("1.8")
@pytest.mark.parametrize("verb", [Queue.pause, Queue.resume])
def test_queue_that_was_deleted_cannot_be_paused_or_resumed(queue, verb):
    Queue.objects.filter(name=queue.name).delete()

    with pytest.raises(QueueNotFound):
        verb(queue)


def error_of(verb, arguments):
    try:
        call(verb, arguments)
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


def test_subclasses_of_str_and_int_are_stored_as_plain_values(queue):
    Queue.objects.create_queue(SafeString("mails"), max_delivery_count=Number.ONE)
    Queue.objects.configure(SafeString("mails"), max_delivery_count=Number.ONE)
    Subscription.objects.subscribe(SafeString("orders"), SafeString("copies"))

    assert Queue.objects.named(SafeString("mails")).max_delivery_count == 1
    assert set(Queue.objects.values_list("name", flat=True)) == {"jobs", "mails", "copies"}
