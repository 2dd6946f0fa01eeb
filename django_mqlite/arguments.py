"""Validate the arguments of public functions. Every error names the argument and its value."""

from collections.abc import Iterable
from typing import Any

from .guard import shown
from .types import MAX_INTEGER, clamped

MAX_TEXT = 1024


def checked_text(value: Any, name: str, *, longest: int = MAX_TEXT) -> str:
    """Return a plain str of 1 to `longest` characters that SQLite can store.

    Raises TypeError for other types, and ValueError for other lengths, NUL and lone surrogates.
    """
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a str, not {shown(value)}")
    if not 0 < len(value) <= longest:
        raise ValueError(f"{name} must have 1 to {longest} characters, not {len(value)}")
    if "\0" in value:
        raise ValueError(f"{name} must not have NUL characters: {shown(value)}")
    encode_text(value, name)
    return str.__str__(value)


def optional_text(value: Any, name: str, *, longest: int = MAX_TEXT) -> str | None:
    """Return None, or what checked_text() returns."""
    return None if value is None else checked_text(value, name, longest=longest)


def encode_text(text: str, name: str) -> bytes:
    """Return the text as UTF-8; raise ValueError for lone surrogates."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{name} must not have lone surrogates: {shown(text)}") from error


def checked_integer(value: Any, name: str, *, least: int = 1, most: int = MAX_INTEGER) -> int:
    """Return a plain int from `least` to `most`; raise TypeError or ValueError for others."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be an int, not {shown(value)}")
    if not least <= value <= most:
        raise ValueError(f"{name} must be between {least} and {most}, not {shown(value)}")
    return int(value)


def checked_id(value: Any, name: str = "id") -> int:
    """Return a sequence number. One that no message can have becomes one that none has."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be an int, not {shown(value)}")
    return clamped(int(value))


def checked_ids(values: Any, name: str = "ids") -> list[int]:
    """Return sequence numbers, each once, in the order given."""
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise TypeError(f"{name} must be a sequence of ints, not {shown(values)}")
    return list(dict.fromkeys(checked_id(value, name) for value in values))
