"""A message is validated and encoded before any SQL runs, and decoded by its content type."""

import sys
import uuid
from collections import OrderedDict, namedtuple
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from types import MappingProxyType

import pytest
from django.contrib.auth.models import Group

from django_mqlite.exceptions import MessageTooLarge, PriorityRefused
from django_mqlite.message import MAX_PROPERTIES, decode, encode, new_message

LIMIT = 1_000
NAN, INFINITY = float("nan"), float("inf")


def message(queue="jobs", data=None, **options):
    return new_message(queue, data, **{"max_body_bytes": LIMIT, **options})


def june(year):
    return datetime(year, 6, 1, tzinfo=UTC)


# Options


def test_message_without_options_has_defaults():
    new = message("jobs", {"a": 1})

    assert (new.queue, new.body, new.content_type) == ("jobs", b'{"a":1}', "application/json")
    assert (new.delay_ms, new.visible_at, new.ttl_ms) == (0, None, 0)
    assert (new.priority, new.max_delivery_count) == (0, 0)
    for name in ("message_id", "correlation_id", "reply_to", "group_id", "subject", "properties"):
        assert getattr(new, name) is None


@pytest.mark.parametrize("size", [0, 1, LIMIT])
def test_body_up_to_the_limit_is_accepted(size):
    assert len(message(data=b"x" * size).body) == size


@pytest.mark.parametrize(
    "data",
    [b"x" * (LIMIT + 1), "é" * (LIMIT // 2 + 1), ["x" * LIMIT]],
    ids=["bytes", "str", "json"],
)
def test_body_above_the_limit_is_refused_with_both_sizes(data):
    with pytest.raises(MessageTooLarge) as caught:
        message(data=data)

    assert caught.value.size > caught.value.limit == LIMIT
    assert f"{caught.value.size:,}" in str(caught.value)


DURATIONS, INTEGERS = ("delay", "ttl"), ("priority", "max_delivery_count")
TEXTS = ("message_id", "correlation_id", "reply_to", "group_id", "subject", "content_type")
REFUSED = [
    (DURATIONS, TypeError, ["5", True, b"", [], june(2026)]),
    (DURATIONS, ValueError, [-1, NAN, INFINITY, 10**400, timedelta.max, timedelta(-1)]),
    (["ttl"], ValueError, [0, 0.0, timedelta()]),
    (["visible_at"], TypeError, [1_767_225_600, "2026-01-01", date(2026, 1, 1), timedelta(1), 0]),
    (["visible_at"], ValueError, [june(year) for year in (1, 1969, 9001, 9999)]),
    (INTEGERS, TypeError, ["1", 1.0, NAN, True, False, b"one", [1]]),
    (INTEGERS, ValueError, [2**63, 10**100, -(2**63)]),
    (["max_delivery_count"], ValueError, [0, -1]),
    ([*TEXTS, "queue"], TypeError, [1, 1.5, True, b"bytes", ["a"], object()]),
    ([*TEXTS, "queue"], ValueError, ["", "x" * 1_025, "a\0b", "\0", "a\ud800b"]),
    (["queue"], TypeError, [None]),
    (["properties"], TypeError, [{"a": 1}, {1: "a"}, {"a": None}, {"a": b"b"}, {None: "a"}]),
    (["properties"], TypeError, ["a=b", [("a", "b")], 5, {"a"}]),
    (["properties"], ValueError, [{"a": "\ud800"}, {"\ud800": "a"}, {"a": "x" * MAX_PROPERTIES}]),
    (["data"], TypeError, [{1: 2}, object()]),
    (["data"], ValueError, [[NAN]]),
]


@pytest.mark.parametrize(
    ("name", "error", "value"),
    [
        (name, error, value)
        for names, error, values in REFUSED
        for name in names
        for value in values
    ],
)
def test_invalid_argument_is_refused_by_name(name, error, value):
    with pytest.raises(error, match=rf"^{name}\b"):
        message(**{name: value})


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"delay": 0, "visible_at": june(2026)}, ValueError, "either delay or visible_at"),
        ({"visible_at": datetime(2026, 1, 1)}, ValueError, "has no time zone"),  # noqa: DTZ001
        ({"prioritty": 1}, TypeError, "prioritty"),
    ],
    ids=["delay and visible_at", "naive time", "unknown option"],
)
def test_invalid_combination_of_options_is_refused(options, error, text):
    with pytest.raises(error, match=text):
        message(**options)


@pytest.mark.parametrize("priority", [1, -1])
def test_priority_of_a_grouped_message_is_refused(priority):
    with pytest.raises(PriorityRefused) as caught:
        message(priority=priority, group_id="g")

    assert caught.value.queue == "jobs"


@pytest.mark.parametrize("value", [2**63 - 1, 1, -1, -(2**63) + 1])
def test_priority_of_63_bits_is_accepted(value):
    assert message(priority=value).priority == value


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("value", ["a", "x" * 1_024, "naïve 🐘", " "])
def test_text_of_1024_characters_is_accepted(name, value):
    assert getattr(message(**{name: value}), name) == value


def test_visible_at_of_another_time_zone_is_converted():
    at = datetime(2026, 1, 1, 2, tzinfo=timezone(timedelta(hours=2)))

    assert message(visible_at=at).visible_at == 1_767_225_600_000


def test_properties_may_be_any_mapping_or_empty():
    assert message(properties=MappingProxyType({"a": "1"})).properties == '{"a":"1"}'
    assert message(properties={}).properties == "{}"


# Encoding


class Colour(StrEnum):
    RED = "red"


class Size(IntEnum):
    LARGE = 3


class Plain(Enum):
    A = 1


@dataclass
class Order:
    id: int


Point = namedtuple("Point", "x y")  # noqa: PYI024 - a plain one is the case


@pytest.mark.parametrize("data", [b"\x00\xff", bytearray(b"\x00\xff"), memoryview(b"\x00\xff")])
def test_bytes_are_stored_unchanged(data):
    body, content_type = encode(data)

    assert (body, type(body)) == (b"\x00\xff", bytes)
    assert content_type is None
    assert decode(body, content_type) == b"\x00\xff"


@pytest.mark.parametrize("data", ["", "plain", "naïve 🐘", "a\0b", '{"not": "json"}'])
def test_text_is_stored_as_utf_8(data):
    body, content_type = encode(data)

    assert (body, content_type) == (data.encode(), "text/plain; charset=utf-8")
    assert decode(body, content_type) == data


@pytest.mark.parametrize(
    "data",
    [None, True, False, 0, -1, 2**63, -(10**30), 1.5, -0.0, [], {}, [1, [2, [3]]], {"": ""},
     {"ключ": ["значение", None, True]}, {"a": {"b": {"c": [{}]}}}, ["a\0b", "\u2028", '"\\']],
)  # fmt: skip
def test_other_data_is_stored_as_json(data):
    body, content_type = encode(data)

    assert content_type == "application/json"
    assert decode(body, content_type) == data


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ((1, 2), b"[1,2]"),
        (Point(1, 2), b"[1,2]"),
        (OrderedDict(b=1, a=2), b'{"b":1,"a":2}'),
        ({Colour.RED: Colour.RED}, b'{"red":"red"}'),
        (Size.LARGE, b"3"),
        ({"a": [1, 2], "b": None}, b'{"a":[1,2],"b":null}'),
        (["é"], '["é"]'.encode()),
    ],
)
def test_json_is_compact_utf_8(data, expected):
    assert encode(data)[0] == expected


class BrokenRepr:
    def __repr__(self):
        raise RuntimeError("no repr")


NO_JSON = [
    *((ValueError, value) for value in (NAN, INFINITY, -INFINITY, "\ud800", "a\udfffb")),
    *((TypeError, value) for value in (
        Decimal("1.5"), june(2026), date(2026, 1, 1), timedelta(1), b"bytes", {1, 2}, frozenset(),
        uuid.UUID(int=0), 1j, object(), Plain.A, Order(1), range(3), (x for x in ()), len, int,
        BrokenRepr(),
    )),
]  # fmt: skip


@pytest.mark.parametrize(("error", "value"), NO_JSON, ids=range(len(NO_JSON)))
def test_value_that_json_does_not_have_is_refused_with_its_path(error, value):
    with pytest.raises(error, match=r"data\['a'\]\[1\] is .*, which JSON cannot represent"):
        encode({"a": [0, value]})
    if not isinstance(value, str | bytes):
        with pytest.raises(error, match=r"^data is "):
            encode(value)


HINTS = {
    "datetime": (june(2026), "pass .isoformat()"),
    "date": (date(2026, 1, 1), "pass .isoformat()"),
    "timedelta": (timedelta(1), "pass .total_seconds()"),
    "Decimal": (Decimal("1.5"), "pass str(…)"),
    "UUID": (uuid.UUID(int=0), "pass str(…)"),
    "bytes": (b"bytes", "pass text, for example base64"),
    "set": ({1}, "pass a list"),
    "enum": (Plain.A, "pass .value"),
    "model": (Group(pk=7), "pass .pk and load the object later"),
}


@pytest.mark.parametrize(("value", "hint"), HINTS.values(), ids=HINTS)
def test_refused_value_says_what_to_pass_instead(value, hint):
    with pytest.raises(TypeError) as caught:
        encode({"at": [value]})

    text = str(caught.value)
    assert text.startswith("data['at'][0] is ")
    assert text.endswith(f", which JSON cannot represent; {hint}")


@pytest.mark.parametrize("key", [1, 1.5, True, None, (1, 2), b"k", Plain.A, Size.LARGE])
def test_key_that_is_not_a_string_is_refused_with_its_path(key):
    with pytest.raises(TypeError, match=r"data\['a'\]\[0\]") as caught:
        encode({"a": [{key: 1}]})

    assert repr(key) in str(caught.value)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ({"a": {"k\ud800": 1}}, r"data\['a'\]"),
        ("a\ud800b", "data .*surrogate"),
        ({"a": 10 ** (sys.get_int_max_str_digits() + 1)}, r"data\['a'\] has too many digits"),
        ([0] * 100_000 + [NAN], r"data\[100000\] is nan"),
    ],
    ids=["surrogate in a key", "surrogate in a text", "too many digits", "long list"],
)
def test_data_that_json_cannot_represent_is_refused_with_its_path(data, text):
    with pytest.raises(ValueError, match=text):
        encode(data)


def test_circular_data_is_refused():
    data = {"a": []}
    data["a"].append(data)

    with pytest.raises(ValueError, match="Circular"):
        encode(data)


class Visited(list):
    """A list that counts its iterations, so that an endless search ends."""

    visits = 0

    def __iter__(self):
        type(self).visits += 1
        if self.visits > 10_000:
            raise AssertionError("visited more than 10,000 times")
        return super().__iter__()


def test_circular_data_with_many_paths_is_refused_quickly():
    parent = Visited()
    parent += [{"parent": parent}, {"parent": parent}]

    with pytest.raises(ValueError, match="Circular"):
        encode(parent)


@pytest.mark.parametrize("depth", [10_000, 100_000])
@pytest.mark.parametrize("shape", ["list", "dict"])
def test_data_nested_too_deeply_is_refused(depth, shape):
    data = 0
    for _ in range(depth):
        data = [data] if shape == "list" else {"a": data}

    with pytest.raises(ValueError, match="data is nested too deeply"):
        encode(data)


# Content types and charsets


@pytest.mark.parametrize(
    ("body", "content_type", "data"),
    [
        (b'{"a":1}', "application/json", {"a": 1}),
        (b'{"a":1}', "APPLICATION/JSON", {"a": 1}),
        (b'{"a":1}', "application/json; charset=utf-8", {"a": 1}),
        (b'{"a":1}', "a/b+json", {"a": 1}),
        ("é".encode(), "text/plain", "é"),
        ("é".encode(), "Text/CSV; header=present", "é"),
        (b"{}", None, b"{}"),
        (b"{}", "", b"{}"),
        (b"{}", "image/png", b"{}"),
        (b"{}", "application/x-json-ish", b"{}"),
    ],
)
def test_body_is_decoded_by_its_content_type(body, content_type, data):
    assert decode(body, content_type) == data


@pytest.mark.parametrize(
    ("content_type", "charset"),
    [
        ("text/plain; charset=utf-16", "utf-16"),
        ("TEXT/PLAIN;CHARSET=UTF-16", "utf-16"),
        ('text/csv; header=present; charset="utf-16-le"', "utf-16-le"),
        ("text/html ; charset = 'latin-1' ; x=y", "latin-1"),
        ("text/plain; charset=utf-8", "utf-8"),
    ],
)
def test_text_is_stored_and_read_in_its_charset(content_type, charset):
    body, _ = encode("é", content_type)

    assert body == "é".encode(charset)
    assert decode(body, content_type) == "é"


@pytest.mark.parametrize("charset", ["klingon", "zlib", "rot13", "undefined", "a\0b", "ü"])
def test_text_in_an_unknown_charset_is_refused(charset):
    content_type = f"text/plain; charset={charset}"

    with pytest.raises(ValueError, match="has an unknown charset"):
        decode(b"text", content_type)
    with pytest.raises(ValueError, match="has an unknown charset"):
        encode("text", content_type)
    assert encode(b"text", content_type)[0] == b"text"


def test_text_that_its_charset_cannot_represent_is_refused():
    with pytest.raises(ValueError, match="data cannot be encoded in latin-1"):
        encode("€", "text/plain; charset=latin-1")
    with pytest.raises(ValueError, match="can't decode"):
        decode(b"\xff", "text/plain; charset=ascii")


@pytest.mark.parametrize("charset", ["utf-16", "utf-32", "latin-1"])
def test_json_ignores_the_charset(charset):
    content_type = f"application/json; charset={charset}"

    body, _ = encode({"a": "é"}, content_type)

    assert body == '{"a":"é"}'.encode()
    assert decode(body, content_type) == {"a": "é"}
