"""What is remembered of a failed delivery; describing it must never fail."""

import json
import traceback

import pytest

from django_mqlite.exceptions import failure_json, text_of

SIZE = 40_000


def describe_error(error, **facts):
    """As the store takes it: JSON text that SQLite can hold."""
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


def test_an_exception_is_described_by_class_message_and_traceback():
    entry = describe_error(raised(ValueError("no article 17")), delivery=2)

    assert entry["class"] == "builtins.ValueError"
    assert entry["message"] == "no article 17"
    assert "test_failures.py" in entry["traceback"]
    assert entry["traceback"].endswith("ValueError: no article 17\n")
    assert entry["delivery"] == 2


def test_a_text_is_a_message_without_class_and_traceback():
    assert describe_error("mail server is down") == {
        "class": "",
        "message": "mail server is down",
        "traceback": "",
    }


def test_a_nested_class_is_named_by_its_whole_path():
    class Inner(Exception):
        pass

    assert describe_error(Inner())["class"].endswith("by_its_whole_path.<locals>.Inner")


def test_the_causes_are_in_the_traceback():
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
def test_nul_and_lone_surrogates_are_written_out(make, text, expected):
    assert describe_error(make(text))["message"] == expected


@pytest.mark.parametrize("make", [str, ValueError], ids=["text", "exception"])
def test_ten_megabytes_are_cut_at_the_end(make):
    entry = describe_error(make("begin " + "x" * 10_000_000))

    assert entry["message"].startswith("begin xxx")
    assert entry["message"].endswith("…")
    assert len(entry["message"]) < 1_100
    assert len(entry["traceback"]) < 8_100


def test_ten_megabytes_of_nul_are_bounded_too():
    assert len(describe_error(ValueError("\0" * 10_000_000))["message"]) <= 2_100


def test_a_long_traceback_keeps_its_last_frames():
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
def test_long_texts_leave_frames_and_class_in_traceback(kind, length, add):
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


class BrokenRepr(Exception):
    def __repr__(self):
        raise RuntimeError("no repr")


@pytest.mark.parametrize(
    ("kind", "named"),
    [(BrokenStr, "RuntimeError"), (WrongStr, "TypeError"), (LeavingStr, "SystemExit")],
)
def test_a_broken_str_is_said_and_stops_nothing(kind, named):
    entry = describe_error(raised(kind()))

    assert entry["message"] == f"<its __str__ raised {named}>"
    assert kind.__name__ in entry["traceback"]


def test_a_broken_repr_stops_nothing():
    assert describe_error(raised(BrokenRepr("fine")))["message"] == "fine"


def test_a_traceback_that_cannot_be_formatted_is_said_and_stops_nothing():
    class Awkward(Exception):
        @property
        def __notes__(self):
            raise RuntimeError("no notes")

    entry = describe_error(raised(Awkward("x")))

    assert entry["message"] == "x"
    assert entry["traceback"]


def test_a_deep_chain_of_causes_stops_nothing():
    error = ValueError("innermost")
    for number in range(5_000):
        outer = ValueError(f"level {number}")
        outer.__cause__ = error
        error = outer

    assert describe_error(error)["message"] == "level 4999"


def test_a_circle_of_causes_stops_nothing():
    first, second = ValueError("first"), ValueError("second")
    first.__cause__, second.__cause__ = second, first

    assert describe_error(first)["message"] == "first"


def test_a_deeply_nested_exception_group_stops_nothing():
    error = ValueError("innermost")
    for number in range(2_000):
        error = ExceptionGroup(f"level {number}", [error])

    assert describe_error(error)["message"].startswith("level 1999")


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), GeneratorExit()])
def test_what_is_no_exception_but_ends_a_handler_is_described(error):
    assert describe_error(error)["class"] == f"builtins.{type(error).__name__}"


def test_a_class_with_an_endless_name_is_bounded():
    endless = type("E" * 1_000_000, (Exception,), {})

    assert len(failure_json(endless("x"))) < SIZE


def test_text_of_is_what_str_says():
    assert text_of(ValueError("x")) == "x"
    assert text_of(KeyError("x")) == "'x'"
    assert text_of(ValueError()) == ""


def test_formatting_is_what_python_would_print():
    error = raised(ValueError("x"))

    assert describe_error(error)["traceback"] == "".join(traceback.format_exception(error))
