"""Arguments: stored without loss, or refused at enqueue() with an error that names one."""

import datetime as dt
import enum
import json
import math
from collections import OrderedDict, defaultdict
from decimal import Decimal
from uuid import UUID

import pytest
from django.contrib.auth.models import Group
from django.db import models
from django.http import QueryDict
from django.utils.safestring import mark_safe
from django.utils.translation import gettext_lazy
from hypothesis import given
from hypothesis import strategies as st

from django_mqlite import MessageTooLarge
from django_mqlite.models import Message
from django_mqlite.task_backend.codec import MAX_DEPTH, encoded_call
from django_mqlite.task_backend.compat import task_backends

from . import calls

pytestmark = pytest.mark.django_db

BACKEND = task_backends["default"]


class Colour(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 1


class Status(models.TextChoices):
    PAID = "paid"


def nested(depth):
    value = []
    for _ in range(depth):
        value = [value]
    return value


def endless():
    value = {}
    value["self"] = value
    return value


UNCHANGED = {
    "None": None,
    "bool": True,
    "int": 2**70,
    "float": 0.1,
    "tiny": 5e-324,
    "text": "é\0\u2028😀",
    "empty": ["", [], {}],
    "dict": {"": 1, "queue": {"a": [1, "2", None]}},
    "deep": nested(MAX_DEPTH - 1),
    "large": "x" * 500_000,
    "many": list(range(50_000)),
}

UNSUPPORTED = {
    "datetime": (dt.datetime(2026, 1, 1, tzinfo=dt.UTC), r"pass \.isoformat\(\)"),
    "date": (dt.date(2026, 1, 1), r"pass \.isoformat\(\)"),
    "time": (dt.time(12), r"pass \.isoformat\(\)"),
    "timedelta": (dt.timedelta(1), r"pass \.total_seconds\(\)"),
    "Decimal": (Decimal("1.10"), r"pass str\(…\)"),
    "UUID": (UUID(int=7), r"pass str\(…\)"),
    "model": (Group(pk=7, name="staff"), r"pass \.pk"),
    "queryset": (Group.objects.none(), "pass the primary keys"),
    "tuple": ((1, 2), "pass a list"),
    "set": ({1}, "pass a list"),
    "bytes": (b"x", "pass text"),
    "lazy": (gettext_lazy("hello"), r"a lazy string: pass str\(…\)"),
    "enum": (Colour.RED, r"pass \.value"),
    "int enum": (Level.HIGH, r"pass \.value"),
    "choice": (Status.PAID, r"pass \.value"),
    "ordered": (OrderedDict(a=1), "change or reject <class"),
    "default": (defaultdict(list), "change or reject <class"),
    "query": (QueryDict("a=1&a=2"), r"pass \.dict\(\)"),
    "object": (object(), "change or reject <class"),
    "function": (print, "change or reject <class"),
}

BAD_VALUES = {
    "nan": (math.nan, "nan, which JSON cannot represent"),
    "infinity": (-math.inf, "-inf, which JSON cannot represent"),
    "surrogate": ("\ud800", r"'\\ud800', which JSON cannot represent"),
    "digits": (10**5_000, "too many digits"),
    "deep": (nested(MAX_DEPTH + 1), f"nested more than {MAX_DEPTH} levels deep"),
    "endless": (endless(), f"nested more than {MAX_DEPTH} levels deep, or contains itself"),
}


@pytest.mark.parametrize("name", UNCHANGED)
def test_json_value_reaches_the_task_unchanged(tasks_queue, finish, name):
    value = UNCHANGED[name]
    result = finish(calls.note, value, key=value)

    assert calls.seen == [((value,), {"key": value})]
    assert type(calls.seen[0][0][0]) is type(value)
    stored = calls.note.get_result(result.id)
    assert (stored.args, stored.kwargs) == ([value], {"key": value})


def test_rendered_template_reaches_the_task_as_plain_str(tasks_queue, finish):
    finish(calls.note, mark_safe("<b>"))

    (((text,), _),) = calls.seen
    assert (text, type(text)) == ("<b>", str)


@pytest.mark.parametrize("name", UNSUPPORTED)
@pytest.mark.parametrize("inside", [False, True])
def test_unsupported_value_is_refused_with_its_place_and_a_hint(tasks_queue, name, inside):
    value, hint = UNSUPPORTED[name]
    value, place = ({"a": [0, value]}, r"\['a'\]\[1\]") if inside else (value, "")

    with pytest.raises(TypeError, match=rf"^args\[1\]{place} is (?s:.*){hint}"):
        calls.note.enqueue(1, value)
    with pytest.raises(TypeError, match=rf"^argument 'when'{place} is (?s:.*){hint}"):
        calls.note.enqueue(1, when=value)

    assert not Message.objects.exists()


@pytest.mark.parametrize("name", BAD_VALUES)
def test_value_that_json_lacks_is_refused_by_name(tasks_queue, name):
    value, reason = BAD_VALUES[name]

    with pytest.raises(ValueError, match=rf"^argument 'when'.* {reason}"):
        calls.note.enqueue(1, when=value)

    assert not Message.objects.exists()


@pytest.mark.parametrize("key", [1, None, True, 1.5, (1, 2), Status.PAID], ids=repr)
def test_key_that_is_not_a_str_is_refused_with_its_place(tasks_queue, key):
    with pytest.raises(TypeError, match=r"^args\[0\]\['a'\] has the key .*not a str"):
        calls.note.enqueue({"a": {key: 1}})


def test_call_that_is_too_large_names_its_largest_argument(tasks_queue):
    with pytest.raises(MessageTooLarge) as error:
        calls.note.enqueue("x" * 1_000, page="x" * 2**20, title="x")

    assert error.value.__notes__ == ["The largest of the arguments is argument 'page'."]
    assert not Message.objects.exists()


@pytest.mark.parametrize(
    ("task", "args", "kwargs"),
    [
        (calls.one_or_two, (), {}),
        (calls.one_or_two, (1, 2, 3), {}),
        (calls.one_or_two, (1,), {"third": 3}),
        (calls.one_or_two, (1,), {"first": 1}),
        (calls.attempt, ("x",), {"context": 1}),
    ],
    ids=["too few", "too many", "unknown name", "given twice", "context"],
)
def test_call_that_does_not_match_the_signature_is_refused(tasks_queue, task, args, kwargs):
    with pytest.raises(TypeError, match=rf"{task.name}\(\) does not take these arguments: "):
        task.enqueue(*args, **kwargs)


def test_decorated_task_has_the_signature_of_its_decorator(tasks_queue, finish):
    assert finish(calls.greet, "Ada").return_value == "hello Ada"


def test_name_of_an_argument_must_be_a_str(tasks_queue):
    with pytest.raises(TypeError, match="kwargs has the key 1"):
        BACKEND.enqueue(calls.note, [], {1: 2})


def test_arguments_may_have_any_names(tasks_queue, finish):
    assert finish(calls.named, queue=1, task=2, delay=3, self=4).return_value == [1, 2, 3, 4]


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)
ANYTHING = st.recursive(
    JSON | st.floats() | st.binary() | st.decimals() | st.dates() | st.tuples(st.integers()),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text() | st.integers(), inner, max_size=3)
        | st.tuples(inner, inner)
    ),
    max_leaves=8,
)


def encoded(value):
    return encoded_call(calls.note.func, [value], {}, takes_context=False, max_bytes=2**20)


@given(JSON)
def test_json_value_is_always_accepted(value):
    assert json.loads(encoded(value)) == {"args": [value], "kwargs": {}}


@given(ANYTHING)
def test_any_value_is_encoded_without_loss_or_refused_by_name(value):
    try:
        body = encoded(value)
    except (TypeError, ValueError) as error:
        assert "args[0]" in str(error)  # noqa: PT017 - both outcomes are right
    else:
        assert json.loads(body) == {"args": [value], "kwargs": {}}


@pytest.mark.rule("1.5")
def test_encoder_of_the_settings_does_not_change_tasks(tasks_queue, settings):
    encoder = "django.core.serializers.json.DjangoJSONEncoder"
    settings.MQLITE = {"ENCODER": encoder}

    with pytest.raises(TypeError, match=r"pass \.isoformat\(\)"):
        calls.note.enqueue(dt.datetime(2026, 1, 2, tzinfo=dt.UTC))
