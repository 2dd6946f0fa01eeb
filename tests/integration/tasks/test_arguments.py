"""Arguments: an error at enqueue that names one, or what comes back is what went in."""

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


FAITHFUL = {
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

REFUSED = {
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
    "ordered": (OrderedDict(a=1), "Unsupported type"),
    "default": (defaultdict(list), "Unsupported type"),
    "query": (QueryDict("a=1&a=2"), r"pass \.dict\(\)"),
    "object": (object(), "Unsupported type"),
    "function": (print, "Unsupported type"),
}

BAD_VALUES = {
    "nan": (math.nan, "is nan, which JSON does not have"),
    "infinity": (-math.inf, "is -inf, which JSON does not have"),
    "surrogate": ("\ud800", "surrogates? not allowed|lone surrogate|does not have"),
    "digits": (10**5_000, "digits|does not have"),
    "deep": (nested(MAX_DEPTH + 1), f"nested more than {MAX_DEPTH} levels deep"),
    "endless": (endless(), f"nested more than {MAX_DEPTH} levels deep, or contains itself"),
}


@pytest.mark.parametrize("name", FAITHFUL)
def test_what_json_has_comes_back_as_it_went_in(tasks_queue, run_all, name):
    value = FAITHFUL[name]
    result = calls.note.enqueue(value, key=value)
    run_all()

    assert calls.seen == [((value,), {"key": value})]
    assert type(calls.seen[0][0][0]) is type(value)
    again = calls.note.get_result(result.id)
    assert (again.args, again.kwargs) == ([value], {"key": value})


def test_what_a_template_has_rendered_comes_back_as_plain_text(tasks_queue, run_all):
    calls.note.enqueue(mark_safe("<b>"))
    run_all()

    (((text,), _),) = calls.seen
    assert (text, type(text)) == ("<b>", str)


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("inside", [False, True])
def test_what_would_come_back_as_something_else_is_refused_by_name(tasks_queue, name, inside):
    value, hint = REFUSED[name]
    value, place = ({"a": [0, value]}, r"\['a'\]\[1\]") if inside else (value, "")

    with pytest.raises(TypeError, match=rf"^args\[1\]{place} is .*Unsupported type.*{hint}|{hint}"):
        calls.note.enqueue(1, value)
    with pytest.raises(TypeError, match=rf"^argument 'when'{place} is .*"):
        calls.note.enqueue(1, when=value)

    assert not Message.objects.exists()


@pytest.mark.parametrize("name", BAD_VALUES)
def test_a_value_that_json_does_not_have_is_refused_by_name(tasks_queue, name):
    value, why = BAD_VALUES[name]

    with pytest.raises(ValueError, match=why) as refused:
        calls.note.enqueue(1, when=value)

    assert "when" in str(refused.value)
    assert not Message.objects.exists()


@pytest.mark.parametrize("key", [1, None, True, 1.5, (1, 2), Status.PAID], ids=repr)
def test_a_key_that_is_no_text_is_refused_with_its_place(tasks_queue, key):
    with pytest.raises(TypeError, match=r"^args\[0\]\['a'\] has the key .*not a str"):
        calls.note.enqueue({"a": {key: 1}})


def test_a_megabyte_is_no_trouble(tasks_queue, run_all):
    calls.note.enqueue("x" * 1_000_000)
    run_all()

    assert calls.seen == [(("x" * 1_000_000,), {})]


def test_a_call_that_is_too_large_is_refused_and_its_largest_argument_named(tasks_queue):
    with pytest.raises(MessageTooLarge) as refused:
        calls.note.enqueue("x" * 1_000, page="x" * 2**20, title="x")

    assert refused.value.__notes__ == ["The largest of the arguments is argument 'page'."]
    assert not Message.objects.exists()


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [((), {}), ((1, 2, 3), {}), ((1,), {"third": 3}), ((1,), {"first": 1})],
    ids=repr,
)
def test_a_call_that_the_function_does_not_take_is_refused(tasks_queue, args, kwargs):
    with pytest.raises(TypeError, match=r"one_or_two\(\) does not take these arguments: "):
        calls.one_or_two.enqueue(*args, **kwargs)


def test_a_decorator_may_call_its_function_with_other_arguments(tasks_queue, run_all):
    result = calls.greet.enqueue("Ada")
    run_all()

    result.refresh()

    assert result.return_value == "hello Ada"


def test_the_name_of_an_argument_is_text(tasks_queue):
    with pytest.raises(TypeError, match="kwargs has the key 1"):
        BACKEND.enqueue(calls.note, [], {1: 2})


def test_the_context_is_not_the_callers_to_give(tasks_queue):
    with pytest.raises(TypeError, match=r"does not take these arguments: .*'context'"):
        calls.with_context.enqueue("x", context=1)


def test_arguments_may_be_called_as_they_like(tasks_queue, run_all):
    result = calls.named.enqueue(queue=1, task=2, delay=3, self=4)
    run_all()

    result.refresh()

    assert result.return_value == [1, 2, 3, 4]


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
def test_every_json_value_is_taken(value):
    assert json.loads(encoded(value)) == {"args": [value], "kwargs": {}}


@given(ANYTHING)
def test_whatever_is_taken_comes_back_the_same(value):
    refused = None
    try:
        body = encoded(value)
    except (TypeError, ValueError) as error:
        refused = error
    if refused is not None:
        assert "args[0]" in str(refused)
        return

    assert json.loads(body) == {"args": [value], "kwargs": {}}
