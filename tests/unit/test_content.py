"""Bodies in and out."""

import sys
import uuid
from collections import OrderedDict, namedtuple
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum

import pytest

from django_mqlite.message import decode, encode, encode_json


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
def test_bytes_are_stored_as_they_are(data):
    body, content_type = encode(data)

    assert (body, type(body)) == (b"\x00\xff", bytes)
    assert content_type == "application/octet-stream"
    assert decode(body, content_type) == b"\x00\xff"


@pytest.mark.parametrize("data", ["", "plain", "naïve 🐘", "a\0b", '{"not": "json"}'])
def test_text_is_stored_as_utf_8(data):
    body, content_type = encode(data)

    assert body == data.encode()
    assert content_type == "text/plain; charset=utf-8"
    assert decode(body, content_type) == data


@pytest.mark.parametrize(
    "data",
    [
        None,
        True,
        False,
        0,
        -1,
        2**63,
        -(10**30),
        1.5,
        -0.0,
        [],
        {},
        [1, [2, [3]]],
        {"": ""},
        {"ключ": ["значение", None, True]},
        {"a": {"b": {"c": [{}]}}},
        ["a\0b", "\u2028", '"\\'],
    ],
)
def test_the_rest_is_strict_json_and_comes_back_as_it_went_in(data):
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


NAN, INFINITY = float("nan"), float("inf")


@pytest.mark.parametrize("value", [NAN, INFINITY, -INFINITY, "\ud800", "a\udfffb"])
def test_a_value_that_json_cannot_hold_is_a_value_error(value):
    with pytest.raises(ValueError, match=r"data\['a'\]\[1\] is .*, which JSON cannot represent"):
        encode({"a": [0, value]})


@pytest.mark.parametrize(
    "value",
    [
        Decimal("1.5"),
        datetime(2026, 1, 1, tzinfo=UTC),
        date(2026, 1, 1),
        timedelta(1),
        b"bytes",
        {1, 2},
        frozenset(),
        uuid.UUID(int=0),
        1j,
        object(),
        Plain.A,
        Order(1),
        range(3),
        (x for x in ()),
        len,
        int,
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_type_that_json_does_not_have_is_a_type_error(value):
    with pytest.raises(TypeError, match=r"data\['a'\]\[1\] is .*, which JSON cannot represent"):
        encode({"a": [0, value]})


@pytest.mark.parametrize("value", [NAN, Decimal(1), object()])
def test_the_path_of_a_value_at_the_top_is_data(value):
    with pytest.raises((TypeError, ValueError), match=r"^data is "):
        encode(value)


@pytest.mark.parametrize("key", [1, 1.5, True, None, (1, 2), b"k", Plain.A, Size.LARGE])
def test_a_key_that_is_not_a_string_is_a_type_error_that_names_key_and_place(key):
    with pytest.raises(TypeError, match=r"data\['a'\]\[0\]") as caught:
        encode({"a": [{key: 1}]})

    assert repr(key) in str(caught.value)


def test_a_key_with_a_lone_surrogate_is_a_value_error_that_names_the_place():
    with pytest.raises(ValueError, match=r"data\['a'\]"):
        encode({"a": {"k\ud800": 1}})


def test_a_lone_surrogate_in_text_is_a_value_error_that_names_data():
    with pytest.raises(ValueError, match="data") as caught:
        encode("a\ud800b")

    assert "surrogate" in str(caught.value)


def test_an_integer_of_more_digits_than_python_prints_is_a_value_error_that_names_the_place():
    with pytest.raises(ValueError, match=r"data\['a'\]"):
        encode({"a": 10 ** (sys.get_int_max_str_digits() + 1)})


def test_an_object_whose_repr_is_broken_is_still_a_type_error():
    class Broken:
        def __repr__(self):
            raise RuntimeError("no repr")

    with pytest.raises(TypeError, match=r"data\['a'\]"):
        encode({"a": Broken()})


def test_a_circular_reference_is_a_value_error():
    data = {"a": []}
    data["a"].append(data)

    with pytest.raises(ValueError, match="Circular"):
        encode(data)


class Visited(list):
    """A list that counts its visitors, so that a search without end ends."""

    visits = 0

    def __iter__(self):
        type(self).visits += 1
        if self.visits > 10_000:
            raise AssertionError("visited more than 10,000 times")
        return super().__iter__()


def test_a_structure_with_several_ways_around_is_refused_without_walking_them_all():
    parent = Visited()
    parent += [{"parent": parent}, {"parent": parent}]

    with pytest.raises(ValueError, match="Circular"):
        encode(parent)


@pytest.mark.parametrize("depth", [10_000, 100_000])
@pytest.mark.parametrize("shape", ["list", "dict"])
def test_what_is_nested_too_deeply_is_a_value_error(depth, shape):
    data = 0
    for _ in range(depth):
        data = [data] if shape == "list" else {"a": data}

    with pytest.raises(ValueError, match="data is nested too deeply"):
        encode(data)


def test_a_bad_value_beside_a_million_good_ones_is_found():
    with pytest.raises(ValueError, match=r"data\[100000\] is nan"):
        encode([0] * 100_000 + [NAN])


def test_encode_json_names_what_it_was_given():
    with pytest.raises(TypeError, match=r"^properties\['a'\] is "):
        encode_json({"a": object()}, "properties")


@pytest.mark.parametrize(
    "content_type",
    ["application/json", "APPLICATION/JSON", "application/json; charset=utf-8", "a/b+json"],
)
def test_a_json_content_type_is_parsed(content_type):
    assert decode(b'{"a":1}', content_type) == {"a": 1}


@pytest.mark.parametrize("content_type", ["text/plain", "Text/CSV; header=present"])
def test_a_text_content_type_is_decoded(content_type):
    assert decode("é".encode(), content_type) == "é"


@pytest.mark.parametrize(
    "content_type",
    [
        "text/plain; charset=utf-16",
        "TEXT/PLAIN;CHARSET=UTF-16",
        'text/csv; header=present; charset="utf-16-le"',
        "text/html ; charset = 'latin-1' ; x=y",
        "text/plain; charset=utf-8",
    ],
)
def test_text_is_stored_and_read_in_the_charset_it_names(content_type):
    charset = content_type.lower().split("charset")[1].split(";")[0].strip(" =\"'")

    body, _ = encode("é", content_type)

    assert body == "é".encode(charset)
    assert decode(body, content_type) == "é"


@pytest.mark.parametrize(
    "content_type",
    [
        "text/plain; charset=klingon",
        "text/plain; charset=zlib",
        "text/plain; charset=rot13",
        "text/plain; charset=undefined",
        "text/plain; charset=a\0b",
        "text/plain; charset=ü",
    ],
)
def test_text_in_an_unknown_charset_is_a_value_error(content_type):
    with pytest.raises(ValueError, match="has an unknown charset"):
        decode(b"text", content_type)
    with pytest.raises(ValueError, match="has an unknown charset"):
        encode("text", content_type)
    assert encode(b"text", content_type)[0] == b"text"


def test_text_that_is_not_in_its_charset_is_a_value_error():
    with pytest.raises(ValueError, match="data cannot be encoded in latin-1"):
        encode("€", "text/plain; charset=latin-1")
    with pytest.raises(ValueError, match="can't decode"):
        decode(b"\xff", "text/plain; charset=ascii")


@pytest.mark.parametrize("charset", ["utf-16", "utf-32", "latin-1"])
def test_json_is_never_in_another_charset(charset):
    content_type = f"application/json; charset={charset}"

    body, _ = encode({"a": "é"}, content_type)

    assert body == '{"a":"é"}'.encode()
    assert decode(body, content_type) == {"a": "é"}


@pytest.mark.parametrize("content_type", [None, "", "image/png", "application/x-json-ish"])
def test_any_other_content_type_gives_the_bytes(content_type):
    assert decode(b"{}", content_type) == b"{}"
