"""How the commands read their arguments."""

import math
from argparse import ArgumentTypeError


def names(text: str) -> tuple[str, ...]:
    """Comma-separated names, in order, each once."""
    return tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))


def positive_int(text: str) -> int:
    """A whole number of at least 1."""
    try:
        value = int(text)
    except ValueError:
        raise ArgumentTypeError(f"{text!r} is no whole number") from None
    if value < 1:
        raise ArgumentTypeError(f"{value} is less than 1")
    return value


def interval(text: str) -> float:
    """Seconds between two looks: a tenth at least, so that looking is not all that is done."""
    value = seconds(text)
    if value < 0.1:
        raise ArgumentTypeError(f"{text!r} is less than 0.1 s")
    return value


def seconds(text: str) -> float:
    """Seconds, not negative."""
    try:
        value = float(text)
    except ValueError:
        raise ArgumentTypeError(f"{text!r} is no number of seconds") from None
    if not 0 <= value < math.inf:
        raise ArgumentTypeError(f"{text!r} is no length of time")
    return value
