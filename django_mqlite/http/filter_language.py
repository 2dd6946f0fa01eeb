"""Translate the filter language of mqlite's clients, expr, to CEL.

A filter is parsed by operator precedence, and each part is translated as soon as it is read. Parts
have types, as in expr, so that a filter which cannot work is refused when a client subscribes.

The translation keeps expr's meaning where CEL differs:

- a missing property is '', and a missing member of a JSON object is null;
- `and` and `or` fail if their left side fails, whereas CEL's operators ignore such an error;
- a division has a fraction, and integers and floats can be mixed.
"""

from collections.abc import Mapping

from .filter_parts import (
    FUNCTIONS,
    METHODS,
    TEXT_OPERATORS,
    Part,
    binary,
    element,
    limited,
    negated,
    number,
    require,
    signed,
    text,
    unsupported,
)
from .filter_tokens import END, Token, number_of, text_of, tokens_of

MAX_BYTES = 4_096
MAX_TOKENS = 1_000
MAX_DEPTH = 25

VARIABLES: Mapping[str, str] = {
    **dict.fromkeys(("subject", "group_id", "correlation_id", "reply_to", "message_id"), "string"),
    **dict.fromkeys(("content_type", "body_text"), "string"),
    **dict.fromkeys(("subject_parts", "property_keys"), "strings"),
    **dict.fromkeys(("enqueued_at", "visible_at"), "time"),
    "body_size": "int",
    "properties": "properties",
    "body_json": "map",
}
"""The variables of a filter with their types."""

PRECEDENCE = {
    "or": 10,
    "and": 15,
    **dict.fromkeys(("==", "!=", "<", "<=", ">", ">=", "in", *TEXT_OPERATORS), 20),
    **dict.fromkeys(("+", "-"), 30),
    **dict.fromkeys(("*", "/", "%"), 60),
    "??": 500,
}
PRECEDENCE_OF_NOT, PRECEDENCE_OF_SIGN = 50, 90
UNSUPPORTED = {
    "|": "the pipe |",
    "..": "the range operator ..",
    "**": "the operator **",
    "^": "the operator ^",
    "?:": "the operator ?:",
    ";": "several statements",
    "{": "a map",
}

LOOPS = {"all": "all", "any": "exists", "none": "exists", "one": "exists_one", "filter": "filter"}


def translate(expression: str) -> str:
    """Return the filter in CEL; '' for an empty one, which matches every message.

    Raises ValueError for a filter that is not valid, and for one that cannot be translated; the
    error names what is wrong.
    """
    size = len(expression.encode(errors="surrogatepass"))
    if size > MAX_BYTES:
        raise ValueError(f"A filter has at most {MAX_BYTES} bytes, not {size}.")
    tokens = list(tokens_of(expression))
    if not tokens:
        return ""
    if len(tokens) > MAX_TOKENS:
        raise ValueError(f"A filter has at most {MAX_TOKENS} tokens, not {len(tokens)}.")
    return _Translator(tokens).translate()


class _Translator:
    """A parser by operator precedence that returns translated parts."""

    def __init__(self, tokens: list[Token]) -> None:
        self._tokens = tokens
        self._position = 0
        self._depth = 0
        self._item: str | None = None
        """The type of `#` inside a loop."""

    def translate(self) -> str:
        part = self._expression()
        if self._next is not END:
            raise self._unexpected(self._next)
        if part.kind not in ("bool", "any"):
            raise ValueError(f"A filter must be true or false; this one is of type {part.kind}.")
        return part.cel

    # Tokens

    @property
    def _next(self) -> Token:
        return self._tokens[self._position] if self._position < len(self._tokens) else END

    def _take(self) -> Token:
        token = self._next
        self._position += 1
        return token

    def _accept(self, text: str) -> bool:
        is_next = self._next.text == text and self._next.kind in ("operator", "name")
        self._position += is_next
        return is_next

    def _expect(self, text: str) -> None:
        if not self._accept(text):
            raise self._unexpected(self._next, f"instead of {text!r}")

    def _unexpected(self, token: Token, instead: str = "") -> ValueError:
        if token.kind == "operator" and token.text in UNSUPPORTED:
            unsupported(UNSUPPORTED[token.text])
        where = f"{token.text!r}" if token is not END else "end"
        return ValueError(f"The filter has an unexpected {where} {instead}".rstrip() + ".")

    # Operators

    def _expression(self, precedence: int = 0) -> Part:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            unsupported(f"more than {MAX_DEPTH} levels of nesting")
        left = self._unary()
        while (operator := self._operator(precedence)) is not None:
            is_negated, name = operator
            right = self._expression(PRECEDENCE[name] + 1)
            left = limited(binary(name, left, right))
            if is_negated:
                left = negated(left)
        if precedence == 0 and self._accept("?"):
            left = self._conditional(left)
        self._depth -= 1
        return left

    def _operator(self, precedence: int) -> tuple[bool, str] | None:
        """Take the next binary operator if it binds at least as tightly; return it, if negated."""
        token = self._next
        if token.kind not in ("operator", "name"):
            return None
        is_negated = token.text == "not"
        if is_negated:
            following = self._tokens[self._position + 1 : self._position + 2]
            if not following or following[0].text not in ("in", *TEXT_OPERATORS):
                return None
            token = following[0]
        if PRECEDENCE.get(token.text, -1) < precedence:
            return None
        self._position += 1 + is_negated
        return is_negated, token.text

    def _conditional(self, condition: Part) -> Part:
        require(condition, ("bool",), "the condition of ?:")
        yes = self._expression()
        self._expect(":")
        no = self._expression()
        cel = f"{condition.operand} ? {yes.operand} : {no.operand}"
        return Part(cel, yes.kind if yes.kind == no.kind else "any", is_operand=False)

    def _unary(self) -> Part:
        if self._accept("not"):
            return negated(self._expression(PRECEDENCE_OF_NOT))
        for sign in ("-", "+"):
            if self._accept(sign):
                return signed(sign, self._expression(PRECEDENCE_OF_SIGN))
        return self._postfix(self._primary())

    # Operands

    def _primary(self) -> Part:
        token = self._take()
        match token:
            case Token("number"):
                return number(number_of(token.text))
            case Token("text"):
                return text(text_of(token.text))
            case Token("name", name):
                return self._named(name)
            case Token("operator", "("):
                part = self._expression()
                self._expect(")")
                return part._replace(cel=part.operand, is_operand=True, terms=("", ()))
            case Token("operator", "["):
                return self._list()
            case Token("operator", "#") if self._item is not None:
                return Part("item", self._item)
            case _:
                raise self._unexpected(token)

    def _list(self) -> Part:
        items: list[Part] = []
        while not self._accept("]"):
            if items:
                self._expect(",")
            items.append(self._expression())
        is_text = all(item.kind == "string" for item in items)
        cel = ", ".join(item.cel for item in items)
        return Part(f"[{cel}]", "strings" if is_text else "list")

    def _named(self, name: str) -> Part:
        if name in ("true", "false"):
            return Part(name, "bool")
        if name == "nil":
            return Part("null", "nil")
        if self._accept("("):
            return self._call(name)
        if name in VARIABLES:
            return Part(name, VARIABLES[name])
        if name in ("let", "if", "$env"):
            unsupported(name)
        raise ValueError(
            f"The filter uses {name!r:.100}; the variables are {', '.join(sorted(VARIABLES))}."
        )

    def _call(self, name: str) -> Part:
        if name in LOOPS or name == "count":
            return self._loop(name)
        if name not in FUNCTIONS:
            unsupported(f"the function {name:.100}()")
        count, call = FUNCTIONS[name]
        arguments: list[Part] = []
        while not self._accept(")"):
            if arguments:
                self._expect(",")
            arguments.append(self._expression())
        if len(arguments) != count:
            raise ValueError(f"{name}() takes {count} argument(s), not {len(arguments)}.")
        return call(name, *arguments)

    def _loop(self, name: str) -> Part:
        if self._item is not None:
            unsupported(f"{name}() inside another loop")
        items = self._expression()
        require(items, ("strings", "list"), f"{name}()")
        if not self._accept(","):
            unsupported(f"{name}() without a condition")
        self._item = "string" if items.kind == "strings" else "any"
        has_braces = self._accept("{")
        condition = self._expression()
        if has_braces:
            self._expect("}")
        self._item = None
        self._expect(")")
        require(condition, ("bool",), f"the condition of {name}()")
        cel = f"{items.operand}.{LOOPS.get(name, 'filter')}(item, {condition.cel})"
        if name == "filter":
            return Part(cel, items.kind)
        if name == "count":
            return Part(f"size({cel})", "int")
        return Part(f"!{cel}", "bool", is_operand=False) if name == "none" else Part(cel, "bool")

    def _postfix(self, part: Part) -> Part:
        while True:
            if self._accept("["):
                if self._next.text == ":":
                    unsupported("a slice [:]")
                index = self._expression()
                if self._next.text == ":":
                    unsupported("a slice [:]")
                self._expect("]")
                part = limited(element(part, index))
            elif self._next.text in (".", "?."):
                is_optional = self._take().text == "?."
                part = limited(self._member(part, is_optional=is_optional))
            else:
                return part

    def _member(self, part: Part, *, is_optional: bool) -> Part:
        token = self._take()
        if token.kind != "name":
            raise self._unexpected(token)
        if part.kind in METHODS:
            return self._method(part, token.text)
        if self._next.text == "(":
            unsupported(f"the method {token.text:.100}() of a value of type {part.kind}")
        name = text(token.text)
        if not is_optional:
            return element(part, name)
        require(part, ("map",), "?.")
        return Part(f"optional_member({part.cel}, {name.cel})", "any")

    def _method(self, part: Part, name: str) -> Part:
        if name not in METHODS[part.kind]:
            unsupported(f"{name:.100} of a {part.kind}")
        self._expect("(")
        self._expect(")")
        template, kind = METHODS[part.kind][name]
        return Part(template.format(part.operand), kind)
