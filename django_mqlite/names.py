"""Queue names: validation, and suggestions for wrong ones."""

import re
from collections.abc import Iterable
from difflib import get_close_matches

from .guard import safe_repr

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


def checked_name(name: str) -> str:
    """Return `name`; raise ValueError if it is not a valid queue name.

    Names are used in URLs, command lines and file names, so they only contain characters that need
    no quoting there.
    """
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise ValueError(
            f"Invalid queue name {safe_repr(name)}: use 1 to 128 letters, digits, "
            '".", "_" or "-", starting with a letter or digit'
        )
    return str.__str__(name)


def suggestion(name: object, known: Iterable[str]) -> str:
    """Return the end of an error about an unknown name: a similar name, or all known names."""
    similar = _similar(name, known)
    return f"; did you mean {similar!r}?" if similar else f"; known: {', '.join(sorted(known))}"


def suggestion_sentence(name: object, known: Iterable[str]) -> str:
    """Return a sentence with a similar name, with a leading space; '' if there is none."""
    similar = _similar(name, known)
    return f" Did you mean {similar!r}?" if similar else ""


def _similar(name: object, known: Iterable[str]) -> str | None:
    return next(iter(get_close_matches(str(name), list(known), n=1)), None)
