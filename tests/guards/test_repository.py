"""Conventions that a reviewer would otherwise check in every change."""

import ast
import re
from itertools import pairwise

import pytest

from django_mqlite import exceptions
from django_mqlite.exceptions import MqliteError
from tests.support.pages import pages
from tests.support.source import PACKAGE, ROOT, python_files, text_files, tree_of

MACHINE_PATH = re.compile(r"(?<![\w.~-])/(root|home|work|Users)/\w")
LEFTOVER = re.compile(r"\b(TOD[O]|FIXM[E]|XX[X])\b")
ERROR_PATH = re.compile(r"django_mqlite\.exceptions\.([A-Z]\w+)")
# In identifiers, each is a second word for something that has one. Prose may use them.
WRONG_WORDS = {"ack", "cleaner", "dequeue", "heartbeat", "janitor", "nack", "requeue", "snooze"}
WRONG_PAIRS = {("receipt", "handle"), ("visibility", "timeout")}

# In prose, these are literal translations or riddles; see docs/contributing.md for plain words.
CALQUE = re.compile(
    r"\b("
    r"of (ours|theirs)|as ever|anew|so many|till|as good as none|for it is active"
    r"|(is|are|was) no (queue|length|number|place|dead letter|task|rate|JSON|whole)\b"
    r"|may be passed over|is told (in|at|about|with)|shall become|cannot be called so"
    r"|was to have|better use|bring its token"
    r")\b",
    re.IGNORECASE,
)
CODE_IN_PROSE = re.compile(r"^```.*?^```|`[^`\n]*`", re.MULTILINE | re.DOTALL)


def calques_in(prose: str) -> list[str]:
    """Return the calques in a page of Markdown, outside code."""
    return [match[0] for match in CALQUE.finditer(CODE_IN_PROSE.sub("", prose))]


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_prose_has_no_calques(page):
    assert calques_in(page.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "sentence",
    [
        "'10x' is no length of time.",
        "The file is written anew.",
        "It was refused, for it is active.",
        "Mails shall become files.",
        "A handler of ours.",
    ],
)
def test_calque_in_prose_is_reported(sentence):
    assert calques_in(sentence)


@pytest.mark.parametrize(
    "sentence",
    [
        "Workers acknowledge (ack) messages and send a heartbeat.",
        "A retry, a requeue, a visibility timeout, a janitor.",
        "The setting `is no queue` is code.",
    ],
)
def test_words_of_the_field_are_allowed_in_prose(sentence):
    assert calques_in(sentence) == []


@pytest.mark.parametrize("pattern", [MACHINE_PATH, LEFTOVER], ids=["machine path", "leftover"])
def test_files_have_no_machine_path_or_leftover(pattern):
    matches = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in text_files()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if pattern.search(line)
    ]

    assert matches == []


def names_in(tree: ast.Module) -> set[str]:
    """Return every name that a module defines."""
    names = set()
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                names.add(name)
            case ast.ClassDef(name=name):
                names.add(re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name))
            case ast.arg(arg=name) | ast.Name(id=name, ctx=ast.Store()):
                names.add(name)
            case ast.Attribute(attr=name, ctx=ast.Store()) | ast.alias(asname=str(name)):
                names.add(name)
    return names


def wrong_words_in(tree: ast.Module) -> set[str]:
    return {
        name
        for name in names_in(tree)
        if WRONG_WORDS & set(words := name.lower().split("_")) or WRONG_PAIRS & set(pairwise(words))
    }


@pytest.mark.parametrize(
    "path", python_files(PACKAGE), ids=lambda path: str(path.relative_to(PACKAGE))
)
def test_identifiers_use_the_glossary(path):
    assert wrong_words_in(tree_of(path)) == set()


@pytest.mark.parametrize(
    "line",
    [
        "def ack(message): ...",
        "async def send_heartbeat(): ...",
        "class RequeueCommand: ...",
        "class Janitor: ...",
        "def f(*, nack=False): ...",
        "snooze_ms = 5",
        "self.visibility_timeout = 5",
        "RECEIPT_HANDLE: str",
        "for requeue in []: ...",
        "from .settle import complete as ack",
    ],
)
def test_second_word_in_an_identifier_is_reported(line):
    assert wrong_words_in(ast.parse(line))


@pytest.mark.parametrize(
    "line",
    ["acknowledged = pack = back = stack = 1", "def fetch_all(): ...", "receipt = timeout = 1"],
)
def test_similar_words_in_identifiers_are_allowed(line):
    assert wrong_words_in(ast.parse(line)) == set()


def test_errors_named_by_path_exist():
    """Failures are stored with the path of their class, which is imported when they are read."""
    named = {
        name
        for path in python_files(PACKAGE)
        for name in ERROR_PATH.findall(path.read_text(encoding="utf-8"))
    }

    assert len(named) >= 5
    assert [n for n in named if not issubclass(getattr(exceptions, n, int), MqliteError)] == []
