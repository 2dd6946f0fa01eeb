"""Validation of the arguments of public functions; each error names the argument and its value."""

from collections.abc import Iterable
from typing import Any

from .guard import safe_repr
from .types import MAX_INTEGER, clamped

MAX_TEXT = 1024


def checked_text(value: Any, name: str, *, min_length: int = 1, max_length: int = MAX_TEXT) -> str:
    """Return a plain str of `min_length` to `max_length` characters that SQLite can store.

    Raises TypeError for other types, and ValueError for a wrong length, NUL or a lone surrogate.
    """
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a str, not {safe_repr(value)}")
    if not min_length <= len(value) <= max_length:
        raise ValueError(
            f"{name} must have {min_length} to {max_length} characters, not {len(value)}"
        )
    if "\0" in value:
        raise ValueError(f"{name} must not contain NUL characters: {safe_repr(value)}")
    encode_text(value, name)
    return str.__str__(value)


def optional_text(value: Any, name: str, *, max_length: int = MAX_TEXT) -> str | None:
    """Return None, or what checked_text() returns."""
    return None if value is None else checked_text(value, name, max_length=max_length)


def encode_text(text: str, name: str) -> bytes:
    """Return the text as UTF-8; raise ValueError for lone surrogates."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{name} must not contain lone surrogates: {safe_repr(text)}") from error


def checked_integer(value: Any, name: str, *, minimum: int = 1, maximum: int = MAX_INTEGER) -> int:
    """Return a plain int from `minimum` to `maximum`; raise TypeError or ValueError otherwise."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be an int, not {safe_repr(value)}")
    if not minimum <= value <= maximum:
        raise ValueError(f"{name} must be between {minimum} and {maximum}, not {safe_repr(value)}")
    return int(value)


def checked_id(value: Any, name: str = "id") -> int:
    """Return a sequence number, clamped to the range of SQLite's integers."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be an int, not {safe_repr(value)}")
    return clamped(int(value))


def checked_ids(values: Any, name: str = "ids") -> list[int]:
    """Return sequence numbers without duplicates, in the given order."""
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise TypeError(f"{name} must be a sequence of ints, not {safe_repr(values)}")
    return list(dict.fromkeys(checked_id(value, f"each of {name}") for value in values))


def checked_fraction(value: Any, name: str) -> float:
    """Return a float from 0 to 1; raise TypeError or ValueError for others."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name} must be a number from 0 to 1, not {safe_repr(value)}")
    if not 0 <= value <= 1:  # NaN fails this as well
        raise ValueError(f"{name} must be from 0 to 1, not {safe_repr(value)}")
    return float(value)
