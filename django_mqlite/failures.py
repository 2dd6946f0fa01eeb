"""What is remembered of a failed delivery."""

import json
import traceback
from typing import Any

MAX_TEXT = 1_000
MAX_TRACEBACK = 8_000


def failure(error: BaseException | str, **facts: Any) -> str:
    """A JSON object: class path, message, traceback and `facts`, bounded in size.

    Never raises: a broken `__str__`, NUL, lone surrogates and ten megabytes of text are all part
    of what failing code produces, and none of it may keep a message from being settled.
    """
    if isinstance(error, BaseException):
        kind = storable(f"{type(error).__module__}.{type(error).__qualname__}")
        message, trace = text_of(error), _traceback_of(error)
    else:
        kind, message, trace = "", error, ""
    described = {
        "class": kind,
        "message": storable(message),
        "traceback": _clean(_end(trace, MAX_TRACEBACK)),
    }
    return json.dumps(described | facts)


def storable(text: object) -> str:
    """`text` as SQLite stores it: no NUL, no lone surrogates, not endless."""
    return _clean(_start(str(text), MAX_TEXT))


def text_of(error: BaseException) -> str:
    """Its message, whatever `__str__` does."""
    try:
        return str(error)
    except Exception as broken:  # noqa: BLE001 - whatever it is, the delivery still has to end
        return f"<its __str__ raised {type(broken).__name__}>"


def _traceback_of(error: BaseException) -> str:
    try:
        return "".join(traceback.format_exception(error))
    except Exception as broken:  # noqa: BLE001 - see above
        return f"<its traceback could not be formatted: {type(broken).__name__}>"


def _clean(text: str) -> str:
    """SQLite cuts text at NUL and stores no lone surrogate."""
    return text.replace("\0", "\\0").encode(errors="backslashreplace").decode()


def _start(text: str, length: int) -> str:
    return text if len(text) <= length else text[:length] + " …"


def _end(text: str, length: int) -> str:
    """The last frames say where it happened."""
    return text if len(text) <= length else "… " + text[-length:]
