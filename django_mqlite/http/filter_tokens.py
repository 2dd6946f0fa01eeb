"""The tokens and literals of mqlite's filter language."""

import re
from collections.abc import Iterator
from typing import NamedTuple

TOKEN = re.compile(
    r"""
    (?P<space>\s+ | //[^\n]* | /\*.*?\*/)
    | (?P<text>"(?:\\.|[^"\\\n])*" | '(?:\\.|[^'\\\n])*' | `[^`]*`)
    | (?P<number>0[xX][0-9a-fA-F_]+ | 0[oO][0-7_]+ | 0[bB][01_]+
        | (?:\d[\d_]*)?\.\d[\d_]*(?:[eE][+-]?\d+)? | \d[\d_]*(?:[eE][+-]?\d+)?)
    | (?P<name>[$A-Za-z_][$\w]*)
    | (?P<operator>\?\?|\?\.|\?:|==|!=|<=|>=|&&|\|\||\*\*|\.\.|[-+*/%^<>=!()\[\]{},.:;?|\#])
    """,
    re.VERBOSE | re.DOTALL,
)

SYNONYMS = {"&&": "and", "||": "or", "!": "not"}
ESCAPES = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-7]{3})|(.))")
MAX_INTEGER = 2**63 - 1


class Token(NamedTuple):
    kind: str
    text: str


END = Token("end", "")


def tokens_of(expression: str) -> Iterator[Token]:
    """Yield the tokens; raise ValueError for a character that begins none."""
    position = 0
    while position < len(expression):
        match = TOKEN.match(expression, position)
        if match is None:
            raise ValueError(f"The filter has an unexpected {expression[position]!r}.")
        position = match.end()
        kind = str(match.lastgroup)
        if kind != "space":
            text = match[0]
            yield Token(kind, SYNONYMS.get(text, text) if kind == "operator" else text)


def number_of(text: str) -> int | float:
    """Return the value of a number; raise ValueError if it has more than 64 bits."""
    digits = text.replace("_", "")
    if digits[:2].lower() in ("0x", "0o", "0b"):
        value = int(digits, 0)
    elif digits.isdecimal():
        value = int(digits)
    else:
        return float(digits)
    if value > MAX_INTEGER:
        raise ValueError(f"The filter has a number above {MAX_INTEGER}.")
    return value


def text_of(token: str) -> str:
    """Return the value of a quoted text; raise ValueError for an invalid escape."""
    if token[0] == "`":
        return token[1:-1]
    return ESCAPE.sub(_unescaped, token[1:-1])


def _unescaped(match: re.Match[str]) -> str:
    *hexadecimal, octal, character = match.groups()
    code = next((int(digits, 16) for digits in hexadecimal if digits), None)
    if octal:
        code = int(octal, 8)
    if code is not None:
        if code > 0x10FFFF or 0xD800 <= code < 0xE000:
            raise ValueError(f"The filter has the escape {match[0]!r}, which is no character.")
        return chr(code)
    if character not in ESCAPES and character not in "\\'\"`/?":
        raise ValueError(f"The filter has an unknown escape {match[0]!r}.")
    return ESCAPES.get(character, character)
