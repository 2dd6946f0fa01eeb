"""What is remembered of a failed delivery."""

import json
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any, TypeGuard

from .guard import ask

MAX_TEXT = 1_000
MAX_TRACEBACK = 8_000
MAX_FRAMELESS = 2_000
"""Characters of a traceback between two frames: messages, notes, and what caused what."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """What an error says, asked for once; `short` is for a line."""

    kind: str
    message: str
    traceback: str
    short: str


def failure(error: BaseException | str, **facts: Any) -> str:
    """A JSON object: class path, message, traceback and `facts`, bounded in size."""
    return remembered(described(error), **facts)


def remembered(error: Described, **facts: Any) -> str:
    """The same of an error that was described before."""
    texts = {"class": error.kind, "message": error.message, "traceback": error.traceback}
    return json.dumps(texts | facts)


def described(error: BaseException | str) -> Described:
    """Ask the error for its texts. That is foreign code: no transaction may be open.

    Never raises: a broken `__str__`, NUL, lone surrogates and ten megabytes of text are all part
    of what failing code produces, and none of it may keep a message from being settled.
    """
    kind = name = trace = ""
    if is_error(error):
        kind = storable(ask(lambda: _class_path(type(error)), _broken("class")))
        name = kind.rpartition(".")[2]
        trace = ask(lambda: _traceback_of(error), _broken("traceback"))
    text = storable(error)
    short = f"{name}: {text}" if kind else text
    cut = _clean(_end(trace, MAX_TRACEBACK))
    return Described(kind=kind, message=text, traceback=cut, short=short)


def is_error(error: object) -> TypeGuard[BaseException]:
    """What isinstance() says, without asking a `__class__` that may be a property."""
    return issubclass(type(error), BaseException)


def _class_path(kind: type) -> str:
    """Where the class is defined and its name."""
    return _exact(f"{kind.__module__}.{kind.__qualname__}")


def said(error: Mapping[str, Any]) -> str:
    """Class path and message of a failure that was remembered, as far as there are any."""
    return ": ".join(str(error[key]) for key in ("class", "message") if error.get(key))


def is_interruption(error: Mapping[str, Any]) -> bool:
    """Return whether the delivery was ended by its worker, and did not fail."""
    return str(error.get("class", "")).endswith(".Interrupted")


def storable(text: object) -> str:
    """`text` as SQLite stores it: no NUL, no lone surrogates, not endless."""
    return _clean(_start(text_of(text), MAX_TEXT))


def text_of(error: object) -> str:
    """What it says, whatever `__str__` does."""
    return ask(lambda: _exact(str(error)), _broken("__str__"))


def _exact(text: str) -> str:
    """The text as a plain `str`: `__str__` may return a subclass with methods of its own."""
    return str.__str__(text)


def _traceback_of(error: BaseException) -> str:
    """Format the traceback with every message cut, so that none takes the place of the frames."""
    lines = [_cut_line(_exact(line)) for line in traceback.format_exception(error)]
    return "".join(
        "".join(part) if are_frames else _cut_line("".join(part), MAX_FRAMELESS)
        for are_frames, part in groupby(lines, key=_is_frame)
    )


def _is_frame(line: str) -> bool:
    return line.lstrip(" |").startswith('File "')


def _cut_line(line: str, length: int = MAX_TEXT) -> str:
    return line if len(line) <= length else _start(line, length) + "\n"


def _broken(part: str) -> Callable[[BaseException], str]:
    return lambda error: f"<its {part} raised {type(error).__name__}>"


def _clean(text: str) -> str:
    """SQLite cuts text at NUL and stores no lone surrogate."""
    return text.replace("\0", "\\0").encode(errors="backslashreplace").decode()


def _start(text: str, length: int) -> str:
    return text if len(text) <= length else text[:length] + " …"


def _end(text: str, length: int) -> str:
    """The last frames say where it happened."""
    return text if len(text) <= length else "… " + text[-length:]
