"""Queue names: validation, and suggestions for wrong ones."""

import re
from collections.abc import Iterable
from difflib import get_close_matches

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


def checked_name(name: str) -> str:
    """`name` if a queue can be called so; ValueError with the rule otherwise.

    Names travel through URLs, command lines and file names, so they are of the characters that
    need no quoting in any of them.
    """
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise ValueError(
            f"{name!r} is no queue name: 1 to 128 of A-Z a-z 0-9 . _ -, beginning with a letter "
            "or a digit"
        )
    return name


def suggestion(name: object, known: Iterable[str]) -> str:
    """The end of an error about a wrong name: the one that is near, else all there are."""
    near = _near(name, known)
    return f"; did you mean {near!r}?" if near else f"; known: {', '.join(sorted(known))}"


def suggestion_sentence(name: object, known: Iterable[str]) -> str:
    """A sentence behind one that names the wrong name, with its space; '' if none is near."""
    near = _near(name, known)
    return f" Did you mean {near!r}?" if near else ""


def _near(name: object, known: Iterable[str]) -> str | None:
    return next(iter(get_close_matches(str(name), list(known), n=1)), None)
