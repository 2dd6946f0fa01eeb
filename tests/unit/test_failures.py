"""The description of an error that a message keeps; describing it must never fail."""

import json
import traceback

import pytest

from django_mqlite.exceptions import failure_json, text_of

SIZE = 40_000


def describe_error(error, **facts):
    """Return the description as the store takes it: JSON text that SQLite can hold."""
    text = failure_json(error, **facts)
    text.encode()
    assert "\0" not in text
    assert len(text) < SIZE
    return json.loads(text)


def raised(error):
    try:
        raise error
    except type(error) as caught:
        return caught


def test_exception_is_described_by_class_message_and_traceback():
    error = raised(ValueError("no article 17"))

    entry = describe_error(error, delivery=2)

    assert entry["class"] == "builtins.ValueError"
    assert entry["message"] == "no article 17"
    assert "test_failures.py" in entry["traceback"]
    assert entry["traceback"] == "".join(traceback.format_exception(error))
    assert entry["delivery"] == 2


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), GeneratorExit()])
def test_base_exception_is_described_by_its_class(error):
    assert describe_error(error)["class"] == f"builtins.{type(error).__name__}"


def test_text_is_described_without_class_and_traceback():
    assert describe_error("mail server is down") == {
        "class": "",
        "message": "mail server is down",
        "traceback": "",
    }


def test_nested_class_is_described_by_its_whole_path():
    class Inner(Exception):
        pass

    assert describe_error(Inner())["class"].endswith("by_its_whole_path.<locals>.Inner")


def test_traceback_includes_the_causes():
    try:
        try:
            raise KeyError("first")
        except KeyError as error:
            raise ValueError("second") from error
    except ValueError as error:
        entry = describe_error(error)

    assert "KeyError: 'first'" in entry["traceback"]
    assert "direct cause" in entry["traceback"]


@pytest.mark.parametrize("make", [str, ValueError], ids=["text", "exception"])
@pytest.mark.parametrize(
    ("text", "expected"),
    [("a\0b", "a\\0b"), ("a\ud800b", "a\\ud800b"), ("a\udc80", "a\\udc80"), ("", "")],
)
def test_nul_and_lone_surrogates_are_escaped(make, text, expected):
    assert describe_error(make(text))["message"] == expected


@pytest.mark.parametrize("make", [str, ValueError], ids=["text", "exception"])
def test_long_message_is_cut_at_its_end(make):
    entry = describe_error(make("begin " + "x" * 10_000_000))

    assert entry["message"].startswith("begin xxx")
    assert entry["message"].endswith("…")
    assert len(entry["message"]) < 1_100
    assert len(entry["traceback"]) < 8_100
    assert len(describe_error(make("\0" * 10_000_000))["message"]) <= 2_100


def test_long_traceback_keeps_its_last_frames():
    def deep(level):
        if level == 0:
            raise RecursionError("deep")
        deep(level - 1) if level % 2 else also_deep(level - 1)

    def also_deep(level):
        deep(level)

    try:
        deep(300)
    except RecursionError as error:
        entry = describe_error(error)

    assert entry["traceback"].startswith("…")
    assert entry["traceback"].endswith("RecursionError: deep\n")


def add_many_notes(error):
    for _ in range(20_000):
        error.add_note("n" * 20)


def add_long_note(error):
    error.add_note("n" * 200_000)


def raise_long_cause(error):
    error.__cause__ = raised(KeyError("k" * 200_000))


def raise_long_context(error):
    error.__context__ = raised(KeyError("k" * 200_000))


@pytest.mark.parametrize("kind", [ValueError, lambda text: ExceptionGroup(text, [KeyError(text)])])
@pytest.mark.parametrize("length", [1, 200_000])
@pytest.mark.parametrize(
    "add", [print, add_many_notes, add_long_note, raise_long_cause, raise_long_context]
)
def test_traceback_with_long_texts_keeps_frames_and_class(kind, length, add):
    error = kind("x" * length)
    add(error)

    entry = describe_error(raised(error))

    assert "in raised" in entry["traceback"]
    assert f"{type(error).__name__}: xx"[: len(type(error).__name__) + 3] in entry["traceback"]
    assert len(entry["traceback"]) <= 8_002


class BrokenStr(Exception):
    def __str__(self):
        raise RuntimeError("no str")


class WrongStr(Exception):
    def __str__(self):
        return None  # noqa: PLE0307 - that is the point


class LeavingStr(Exception):
    def __str__(self):
        raise SystemExit(3)


@pytest.mark.parametrize(
    ("kind", "named"),
    [(BrokenStr, "RuntimeError"), (WrongStr, "TypeError"), (LeavingStr, "SystemExit")],
)
def test_broken_str_is_described_by_what_it_raises(kind, named):
    entry = describe_error(raised(kind()))

    assert entry["message"] == f"<its __str__ raised {named}>"
    assert kind.__name__ in entry["traceback"]


class BrokenRepr(Exception):
    def __repr__(self):
        raise RuntimeError("no repr")


class BrokenNotes(Exception):
    @property
    def __notes__(self):
        raise RuntimeError("no notes")


def chained(error):
    for _ in range(5_000):
        outer = ValueError("outer")
        outer.__cause__ = error
        error = outer
    return error


def circular(error):
    error.__cause__ = ValueError("other")
    error.__cause__.__cause__ = error
    return error


def grouped(error):
    for _ in range(2_000):
        error = ExceptionGroup("outer", [error])
    return error


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: raised(BrokenRepr("fine")), "fine"),
        (lambda: raised(BrokenNotes("fine")), "fine"),
        (lambda: chained(ValueError("inner")), "outer"),
        (lambda: circular(ValueError("fine")), "fine"),
        (lambda: grouped(ValueError("inner")), "outer"),
    ],
    ids=["repr raises", "notes raise", "deep chain", "circular chain", "nested groups"],
)
def test_odd_exception_is_described(make, message):
    entry = describe_error(make())

    assert entry["message"].startswith(message)
    assert entry["traceback"]


def test_long_class_name_is_cut():
    endless = type("E" * 1_000_000, (Exception,), {})

    assert len(failure_json(endless("x"))) < SIZE


def test_text_of_returns_the_str():
    assert text_of(ValueError("x")) == "x"
    assert text_of(KeyError("x")) == "'x'"
    assert text_of(ValueError()) == ""
