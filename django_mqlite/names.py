"""Names of queues, schedules and options: validation, and suggestions for wrong ones."""

import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any

from .guard import safe_repr

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


def checked_name(name: str, kind: str = "queue") -> str:
    """Return `name`; raise ValueError if it is not a valid name of a queue or another `kind`.

    Names are used in URLs, command lines and file names, so they only contain characters that need
    no quoting there.
    """
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise ValueError(
            f"Invalid {kind} name {safe_repr(name)}: use 1 to 128 letters, digits, "
            '".", "_" or "-", starting with a letter or digit'
        )
    return str.__str__(name)


def check_options(raw: object, known: Iterable[str], where: str) -> None:
    """Raise TypeError unless `raw` is a mapping, and ValueError if it has an unknown option."""
    if not isinstance(raw, Mapping):
        raise TypeError(f"{where} must be a dict, not {safe_repr(raw)}")
    for mistake in unknown_options(raw, known, where):
        raise ValueError(mistake)


def unknown_options(raw: Iterable[Any], known: Iterable[str], where: str) -> list[str]:
    """Return an error for each unknown option, with a suggestion."""
    return [
        f"{where} has no option {safe_repr(name)}{suggestion(name, known)}"
        for name in raw
        if name not in known
    ]


def suggestion(name: object, known: Iterable[str]) -> str:
    """Return the end of an error about an unknown name: a similar name, or all known names."""
    similar = _similar(name, known)
    return f"; did you mean {similar!r}?" if similar else f"; known: {', '.join(sorted(known))}"


def suggestion_sentence(name: object, known: Iterable[str]) -> str:
    """Return a sentence with a similar name, with a leading space; '' if there is none."""
    similar = _similar(name, known)
    return f" Did you mean {similar!r}?" if similar else ""


def _similar(name: object, known: Iterable[str]) -> str | None:
    """Return the most similar name, whatever its case."""
    by_lower = {str(each).lower(): each for each in known}
    similar = get_close_matches(str(name).lower(), list(by_lower), n=1)
    return by_lower[similar[0]] if similar else None
