"""The parts of a filter: what each operator and function of the language is in CEL."""

import re
from collections.abc import Callable, Mapping
from typing import NamedTuple, NoReturn

from .filter_tokens import MAX_INTEGER

MAX_TRANSLATION = 16_384
"""The maximum length of a translation: `??` repeats its left side."""

TEXT_OPERATORS = ("contains", "startsWith", "endsWith", "matches")
SECONDS = {"seconds": 1, "minutes": 60, "hours": 3_600, "days": 86_400, "weeks": 604_800}
UNITS = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,
    "μs": 1_000,
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "h": 3_600_000_000_000,
    "d": 86_400_000_000_000,
    "w": 604_800_000_000_000,
}
DURATION_PART = re.compile(r"([0-9]*\.?[0-9]+)(ns|us|µs|μs|ms|s|m|h|d|w)")
# Methods of Go's time.Time and time.Duration, with their translations.
METHODS: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "time": {
        "Year": ("{}.getFullYear()", "int"),
        "Month": ("({}.getMonth() + 1)", "int"),
        "Day": ("{}.getDate()", "int"),
        "YearDay": ("({}.getDayOfYear() + 1)", "int"),
        "Weekday": ("{}.getDayOfWeek()", "int"),
        "Hour": ("{}.getHours()", "int"),
        "Minute": ("{}.getMinutes()", "int"),
        "Second": ("{}.getSeconds()", "int"),
    },
    "duration": {
        "Hours": ("(double({}.getMilliseconds()) / 3600000.0)", "float"),
        "Minutes": ("(double({}.getMilliseconds()) / 60000.0)", "float"),
        "Seconds": ("(double({}.getMilliseconds()) / 1000.0)", "float"),
        "Milliseconds": ("{}.getMilliseconds()", "int"),
    },
}
CONVERSIONS = {"int": ("int", "int"), "float": ("double", "float"), "string": ("string", "string")}
NUMBERS = ("int", "float")


class Part(NamedTuple):
    """A translated part of a filter."""

    cel: str
    kind: str
    is_operand: bool = True
    """False if the text needs parentheses as an operand."""
    literal: str | int | None = None
    """The value of a literal text or whole number."""
    terms: tuple[str, tuple["Part", ...]] = ("", ())
    """The operator and the terms of a chain of `and` or `or`."""

    @property
    def operand(self) -> str:
        return self.cel if self.is_operand else f"({self.cel})"


def unsupported(what: str) -> NoReturn:
    raise ValueError(f"The filter uses {what}, which this broker does not support.")


def limited(part: Part) -> Part:
    if len(part.cel) > MAX_TRANSLATION:
        unsupported("too many operators ??")
    return part


def require(part: Part, kinds: tuple[str, ...], what: str) -> None:
    if part.kind not in (*kinds, "any"):
        raise ValueError(f"In the filter, {what} cannot be applied to a value of type {part.kind}.")


# Literals


def number(value: float) -> Part:
    """Return a whole number or a float as a part."""
    if isinstance(value, int):
        return Part(str(value), "int", literal=value)
    return Part(repr(value).replace("inf", "1e999"), "float")


def text(value: str) -> Part:
    escaped = "".join(
        f"\\{character}"
        if character in '"\\'
        else character
        if character.isprintable()
        else f"\\U{ord(character):08x}"
        for character in value
    )
    return Part(f'"{escaped}"', "string", literal=value)


# Operators


def negated(part: Part) -> Part:
    require(part, ("bool",), "not")
    return Part(f"!{part.operand}", "bool", is_operand=False)


def signed(sign: str, part: Part) -> Part:
    require(part, (*NUMBERS, "duration"), sign)
    if sign == "+":
        return part
    literal = -part.literal if isinstance(part.literal, int) else None
    if part.kind == "duration":
        return Part(f'duration("0s") - {part.operand}', "duration", is_operand=False)
    return Part(f"-{part.operand}", part.kind, is_operand=False, literal=literal)


def binary(name: str, left: Part, right: Part) -> Part:
    if name in ("and", "or"):
        return _logical(name, left, right)
    if name in ("==", "!=", "<", "<=", ">", ">="):
        return _comparison(name, left, right)
    if name in TEXT_OPERATORS:
        return _text_operator(name, left, right)
    if name == "in":
        return _membership(left, right)
    if name == "??":
        kind = left.kind if left.kind == right.kind else "any"
        return Part(f"({left.operand} != null ? {left.operand} : {right.operand})", kind)
    return _arithmetic(name, left, right)


def _logical(name: str, left: Part, right: Part) -> Part:
    require(left, ("bool",), name)
    require(right, ("bool",), name)
    terms = (*_terms(name, left), *_terms(name, right))
    return Part(_chain(name, terms), "bool", is_operand=False, terms=(name, terms))


def _terms(name: str, part: Part) -> tuple[Part, ...]:
    operator, terms = part.terms
    return terms if operator == name else (part,)


def _chain(name: str, terms: tuple[Part, ...]) -> str:
    """Return the terms as conditionals, halved so that a long chain is not nested deeply."""
    if len(terms) == 1:
        return terms[0].cel
    middle = len(terms) // 2
    left, right = (f"({_chain(name, half)})" for half in (terms[:middle], terms[middle:]))
    return f"{left} ? true : {right}" if name == "or" else f"{left} ? {right} : false"


def _text_operator(name: str, left: Part, right: Part) -> Part:
    require(left, ("string",), name)
    require(right, ("string",), name)
    return Part(f"{left.operand}.{name}({right.cel})", "bool")


def _membership(left: Part, right: Part) -> Part:
    require(right, ("strings", "list", "map", "properties"), "in")
    if right.kind in ("map", "properties", "strings"):
        require(left, ("string", "nil"), "in")
    return Part(f"{left.operand} in {right.operand}", "bool", is_operand=False)


def _family(kind: str) -> str:
    return "number" if kind in NUMBERS else "list" if kind == "strings" else kind


def _comparison(name: str, left: Part, right: Part) -> Part:
    families = {_family(left.kind), _family(right.kind)} - {"any", "nil"}
    ordered = name not in ("==", "!=")
    if len(families) > 1 or (ordered and families - {"number", "string", "time", "duration"}):
        raise ValueError(f"A filter cannot compare {left.kind} {name} {right.kind}.")
    return Part(f"{left.operand} {name} {right.operand}", "bool", is_operand=False)


SUMS = {
    ("string", "+", "string"): "string",
    ("time", "+", "duration"): "time",
    ("duration", "+", "time"): "time",
    ("duration", "+", "duration"): "duration",
    ("time", "-", "time"): "duration",
    ("time", "-", "duration"): "time",
    ("duration", "-", "duration"): "duration",
}


def _arithmetic(name: str, left: Part, right: Part) -> Part:
    kinds = (left.kind, right.kind)
    plain = f"{left.operand} {name} {right.operand}"
    if (result := SUMS.get((left.kind, name, right.kind))) is not None:
        return Part(plain, result, is_operand=False)
    if name == "+" and set(kinds) in ({"any"}, {"any", "string"}):
        return Part(plain, "any", is_operand=False)
    if not all(kind in (*NUMBERS, "any") for kind in kinds):
        raise ValueError(f"A filter cannot compute {left.kind} {name} {right.kind}.")
    if name == "%":
        return Part(plain, "int", is_operand=False)
    if kinds == ("int", "int") and name != "/":
        return Part(plain, "int", is_operand=False)
    return Part(f"{_double(left)} {name} {_double(right)}", "float", is_operand=False)


def _double(part: Part) -> str:
    return part.operand if part.kind == "float" else f"double({part.cel})"


# Elements and functions


def element(part: Part, index: Part) -> Part:
    if part.kind == "properties":
        require(index, ("string",), "[] of properties")
        cel = f'({index.operand} in {part.operand} ? {part.operand}[{index.cel}] : "")'
        return Part(cel, "string")
    if part.kind == "map" or (part.kind == "any" and index.kind == "string"):
        require(index, ("string",), "[] of a map")
        if part.kind == "any":
            return Part(f"member({part.cel}, {index.cel})", "any")
        cel = f"({index.operand} in {part.operand} ? {part.operand}[{index.cel}] : null)"
        return Part(cel, "any")
    require(part, ("strings", "list"), "[] or .")
    require(index, ("int",), "[] of a list")
    position = index.cel
    if isinstance(index.literal, int) and index.literal < 0:
        position = f"size({part.cel}) - {-index.literal}"
    return Part(f"{part.operand}[{position}]", "string" if part.kind == "strings" else "any")


def _length(name: str, part: Part) -> Part:
    require(part, ("string", "strings", "list", "map", "properties"), "len()")
    function = "length" if part.kind in ("string", "any") else "size"
    return Part(f"{function}({part.cel})", "int")


def _duration_of_units(name: str, part: Part) -> Part:
    require(part, ("int",), f"{name}()")
    if isinstance(part.literal, int):
        return _duration(part.literal * SECONDS[name] * UNITS["s"])
    return Part(f'duration(string({part.operand} * {SECONDS[name]}) + "s")', "duration")


def _duration_of_text(name: str, part: Part) -> Part:
    if not isinstance(part.literal, str):
        unsupported("duration() of anything but a literal text")
    text = part.literal
    sign, unsigned = (-1, text[1:]) if text[:1] == "-" else (1, text.removeprefix("+"))
    if unsigned == "0":
        return _duration(0)
    parts = DURATION_PART.findall(unsigned)
    if not parts or "".join(number + unit for number, unit in parts) != unsigned:
        raise ValueError(
            f"The filter has an invalid duration {text!r:.100}: use numbers with the units ns, us, "
            "ms, s, m, h, d or w, such as 1d12h."
        )
    return _duration(sign * sum(int(float(number) * UNITS[unit]) for number, unit in parts))


def _duration(nanoseconds: int) -> Part:
    if abs(nanoseconds) > MAX_INTEGER:
        raise ValueError("The filter has a duration of more than 292 years.")
    return Part(f'duration("{nanoseconds}ns")', "duration")


def _conversion(name: str, part: Part) -> Part:
    require(part, ("string", "bool", *NUMBERS), f"{name}()")
    function, kind = CONVERSIONS[name]
    return Part(f"{function}({part.cel})", kind)


def _affix(name: str, text: Part, affix: Part) -> Part:
    return _text_operator("startsWith" if name == "hasPrefix" else "endsWith", text, affix)


FUNCTIONS: Mapping[str, tuple[int, Callable[..., Part]]] = {
    "len": (1, _length),
    "duration": (1, _duration_of_text),
    "now": (0, lambda name: Part("enqueued_at", "time")),
    **dict.fromkeys(SECONDS, (1, _duration_of_units)),
    **dict.fromkeys(CONVERSIONS, (1, _conversion)),
    **dict.fromkeys(("hasPrefix", "hasSuffix"), (2, _affix)),
}
"""The functions without a loop, each with its number of arguments."""
