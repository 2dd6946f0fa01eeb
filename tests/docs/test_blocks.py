"""Blocks and commands on the pages are valid: code compiles; names, commands and options exist.

These blocks are run as well: all in docs/tutorial.md (test_tutorial.py), some of the how-to pages
(test_how_to.py), and those of docs/worker.md in tests/integration/test_worker_docs.py.
"""

import ast
import configparser
import dataclasses
import doctest
import importlib.util
import inspect
import json
import re
import shlex
import sqlite3
import tomllib
from contextlib import closing
from pkgutil import resolve_name

import pytest
import yaml
from django.core.management import BaseCommand, CommandError, get_commands, load_command_class

import django_mqlite
from django_mqlite.message import MessageOptions
from django_mqlite.schedules import ScheduleOptions
from tests.support.pages import Block, blocks_of, calls_of, every_block, pages
from tests.support.schema import GOLDEN
from tests.support.source import ROOT

# Other programs that readers have, or are told to install.
PROGRAMS = {
    ".", "cat", "curl", "django-admin", "fuser", "litestream", "mail", "mv", "rm", "sqlite3",
    "systemctl", "touch",
}  # fmt: skip
OPERATORS = {"|", "||", "&&", ";", "&", ">"}
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
TARGETS = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
INLINE = re.compile(r"`(python manage\.py [^`]+)`")


def check_python(block: Block) -> None:
    """Check that a block compiles, and that names and arguments of this package exist."""
    compile(block.text, block.place, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    for node in ast.walk(ast.parse(block.text)):
        match node:
            case ast.ImportFrom(module=str(module), level=0) if module.startswith("django_mqlite"):
                for alias in node.names:
                    resolve_name(f"{module}:{alias.name}")
            case ast.Constant(value=str(text)) if re.fullmatch(r"django_mqlite\.[\w.]+", text):
                resolve_name(text)
            case ast.Call(func=ast.Name(id=name)) if name in django_mqlite.__all__:
                given = {keyword.arg for keyword in node.keywords if keyword.arg}
                assert given <= keywords_of(getattr(django_mqlite, name)), block.place


def keywords_of(function: object) -> set[str]:
    parameters = inspect.signature(function).parameters.values()
    names = {parameter.name for parameter in parameters}
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        options = ScheduleOptions if function is django_mqlite.periodic else MessageOptions
        names |= set(options.__annotations__)
    return names


def check_session(block: Block) -> None:
    """Check a session at Python's prompt."""
    examples = doctest.DocTestParser().get_examples(block.text)
    assert examples, f"{block.place}: input lines begin with `>>> `"
    typed = "".join(example.source for example in examples)
    check_python(dataclasses.replace(block, text=typed))


def check_console(block: Block) -> None:
    calls = calls_of(block)
    assert calls, f"{block.place}: commands begin with `$ `"
    for call in calls:
        for words in commands_in(call.command):
            check_command(words, block.page)


def commands_in(line: str) -> list[list[str]]:
    """Return the words of each command in a shell line, without leading variables."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;<>")
    lexer.whitespace_split = True
    commands: list[list[str]] = [[]]
    for word in lexer:
        if word in OPERATORS:
            commands.append([])
        elif commands[-1] or not re.match(r"[A-Z_]+=", word):
            commands[-1].append(word)
    return commands


def check_command(words: list[str], page: str) -> None:
    match words:
        case ["python", "manage.py", name, *arguments]:
            check_management_command(name, arguments, page)
        case ["python", "-m", "pip", "install", *packages]:
            check_extras(packages)
        case ["python", "-m", module, *_]:
            assert importlib.util.find_spec(module), module
        case ["python", "-c", code]:
            compile(code, page, "exec")
        case ["make", target, *_]:
            assert target in TARGETS
        case [program, *_]:
            assert program in PROGRAMS, f"{page}: add {program} to PROGRAMS if readers have it."


def check_management_command(name: str, arguments: list[str], page: str) -> None:
    if name not in get_commands():
        own = f"/management/commands/{name}.py\n"
        assert any(own in block.text for block in blocks_of(ROOT / page)), name
        return
    app = get_commands()[name]
    command = app if isinstance(app, BaseCommand) else load_command_class(app, name)
    # The aliases of a reader's project are not those of this one.
    words = re.sub(r"(--database[ =])\w+", r"\1default", shlex.join(arguments))
    parser = command.create_parser("manage.py", name)
    parser.called_from_command_line = False
    parser.parse_args(shlex.split(words))


def check_extras(packages: list[str]) -> None:
    for word in packages:
        named = re.fullmatch(r"django-mqlite(?:\[([\w,-]+)\])?", word)
        if named and named[1]:
            extras = PYPROJECT["project"]["optional-dependencies"]
            assert set(named[1].split(",")) <= set(extras), word


def check_ini(block: Block) -> None:
    parser = configparser.ConfigParser(interpolation=None)
    parser.read_string(block.text)
    assert parser.sections()


def check_sql(block: Block) -> None:
    parameters = dict.fromkeys(re.findall(r":(\w+)", block.text))
    with closing(sqlite3.connect(":memory:")) as database:
        database.executescript(GOLDEN.read_text(encoding="utf-8"))
        database.execute(f"EXPLAIN {block.text}", parameters)


def check_dockerfile(block: Block) -> None:
    instructions = [line for line in block.text.splitlines() if line and line[0] != "#"]
    for line in instructions:
        assert re.match(r"(ARG|CMD|COPY|ENTRYPOINT|ENV|FROM|RUN|USER|VOLUME|WORKDIR) ", line), line
        if line.startswith(("CMD", "ENTRYPOINT")):
            check_command(json.loads(line.partition(" ")[2]), block.page)


def check_procfile(block: Block) -> None:
    for line in block.text.splitlines():
        assert re.match(r"\w+: \S", line), f"{block.place}: a block without a language: {line}"


CHECKS = {
    "": check_procfile,
    "console": check_console,
    "dockerfile": check_dockerfile,
    "ini": check_ini,
    "json": lambda block: json.loads(block.text),
    "pycon": check_session,
    "python": check_python,
    "sql": check_sql,
    "test": lambda block: None,  # a mark for test_tutorial.py
    "text": lambda block: None,
    "toml": lambda block: tomllib.loads(block.text),
    "yaml": lambda block: yaml.safe_load(block.text),
}
BLOCKS = [block for block in every_block() if not block.language.startswith("{")]


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.place)
def test_block_is_valid_in_its_language(block):
    assert block.language in CHECKS, f"{block.place}: there is no check for {block.language!r}"

    CHECKS[block.language](block)


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.relative_to(ROOT).as_posix())
def test_command_in_a_sentence_is_valid(page):
    for command in INLINE.findall(page.read_text(encoding="utf-8").replace("\n", " ")):
        if "…" not in command and not re.search(r"\b[A-Z]{2,}\b", command):
            for words in commands_in(command):
                check_command(words, page.relative_to(ROOT).as_posix())


MISTAKES = (
    AssertionError,
    AttributeError,
    CommandError,
    ImportError,
    SyntaxError,
    ValueError,
    configparser.Error,
    sqlite3.Error,
    yaml.YAMLError,
)


def wrong(language: str, text: str) -> Block:
    return Block(page="docs/worker.md", line=1, language=language, text=text)


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("python", "def"),
        ("python", "from django_mqlite import enqeue"),
        ("python", "enqueue('emails', 1, pirority=5)"),
        ("python", "ROUTERS = ['django_mqlite.router.MqliteRouter']"),
        ("console", "no command"),
        ("console", "$ python manage.py runwroker"),
        ("console", "$ python manage.py runworker --thread-count 8"),
        ("console", "$ python manage.py mqlite peak emails"),
        ("console", "$ python manage.py check || frobnicate"),
        ("console", "$ python -m pip install 'django-mqlite[filter]'"),
        ("console", "$ python -m no_such_module"),
        ("console", "$ make coffee"),
        ("dockerfile", 'CMD ["python", "manage.py", "runwroker"]'),
        ("ini", "ExecStart=nothing"),
        ("json", "{'a': 1}"),
        ("pycon", "enqueue(1)"),
        ("pycon", ">>> from django_mqlite import enqeue"),
        ("sql", "SELECT id FROM mqlite_massages"),
        ("toml", "a = "),
        ("yaml", "a: ["),
        ("", "some text"),
    ],
)
def test_mistake_in_a_block_is_reported(language, text):
    with pytest.raises(MISTAKES):
        CHECKS[language](wrong(language, text))
