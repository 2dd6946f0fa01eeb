"""The docs have every command with its options, and every code of `why`."""

import re
import shlex
from argparse import ArgumentParser

import pytest
from django.core.management import load_command_class

from django_mqlite.management.cli import GROUPS, SUBCOMMANDS
from tests.support.pages import pages
from tests.support.source import PACKAGE, ROOT

PAGE = (ROOT / "docs" / "command-line.md").read_text(encoding="utf-8")
MENTIONED = re.compile(r"`manage\.py (runworker|runreaper|mqlite)\b([^`]*)`")
CODE = re.compile(r'(?:_explanation\(\s*\w+,\s*|code ?= ?|code, text = )"(\w+)"')


@pytest.mark.parametrize("name", SUBCOMMANDS)
def test_subcommand_is_in_the_docs_with_each_option(name):
    parser = ArgumentParser()
    SUBCOMMANDS[name].add_arguments(parser)
    options = re.findall(r"(--[a-z-]+)", parser.format_usage())

    (entry,) = re.findall(rf"^\|[^|]*`{name}[ `].*$", PAGE, re.MULTILINE)

    assert [option for option in options if option not in entry] == []


@pytest.mark.parametrize("name", SUBCOMMANDS)
def test_example_of_a_subcommand_is_valid_and_in_the_docs(name):
    example = SUBCOMMANDS[name].example
    program, subcommand, *arguments = shlex.split(example)
    parser = ArgumentParser()
    SUBCOMMANDS[name].add_arguments(parser)

    assert (program, subcommand) == ("mqlite", name)
    parser.parse_args(arguments)
    assert f"$ python manage.py {example}\n" in PAGE


@pytest.mark.parametrize("name", SUBCOMMANDS)
def test_subcommand_and_its_arguments_have_a_help_text(name):
    parser = ArgumentParser()
    SUBCOMMANDS[name].add_arguments(parser)

    assert SUBCOMMANDS[name].help.endswith(".")
    assert [action.dest for action in parser._actions if not action.help] == []


def test_each_subcommand_is_in_one_group_of_the_help():
    assert sorted(name for names in GROUPS.values() for name in names) == sorted(SUBCOMMANDS)


def test_help_lists_the_commands_by_group(monkeypatch):
    for columns in (80, 40):
        monkeypatch.setenv("COLUMNS", str(columns))
        parser = load_command_class("django_mqlite", "mqlite").create_parser("manage.py", "mqlite")
        lines = parser.description.splitlines()

        assert [line for line in GROUPS if f"{line}:" not in lines] == []
        assert [name for name in SUBCOMMANDS if not has_line(lines, f"  {name} ")] == []
        assert max(map(len, lines)) <= columns
        assert parser.description in parser.format_help()


def test_help_of_a_subcommand_ends_with_its_example_on_one_line():
    command = load_command_class("django_mqlite", "mqlite")
    parser = command.create_parser("manage.py", "mqlite")
    (subparsers,) = (action for action in parser._actions if action.dest == "subcommand")

    for name, subcommand in SUBCOMMANDS.items():
        *_, heading, example = subparsers.choices[name].format_help().splitlines()

        assert heading == "example:"
        assert example == f"  manage.py {subcommand.example}"


def has_line(lines: list[str], beginning: str) -> bool:
    return any(line.startswith(beginning) for line in lines)


def test_reaper_is_in_the_docs_with_each_option():
    parser = ArgumentParser()
    load_command_class("django_mqlite", "runreaper").add_arguments(parser)
    options = set(re.findall(r"(--[a-z-]+)", parser.format_usage()))
    page = (ROOT / "docs" / "worker.md").read_text(encoding="utf-8")

    assert "--database" in options
    assert {option for option in options if f"`{option}" not in page} == set()


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.relative_to(ROOT).as_posix())
def test_commands_on_a_page_exist_with_their_options(page):
    for command, arguments in MENTIONED.findall(
        page.read_text(encoding="utf-8").replace("\n", " ")
    ):
        subcommand = re.match(r" ([a-z][a-z-]*)", arguments) if command == "mqlite" else None
        assert set(re.findall(r"--[a-z-]+", arguments)) <= options_of(command, subcommand)


def test_unknown_option_on_a_page_is_reported():
    (mention,) = MENTIONED.findall("`manage.py runworker --thread 4`")

    assert mention == ("runworker", " --thread 4")
    assert "--thread" not in options_of("runworker", None)


def options_of(command: str, subcommand: re.Match[str] | None) -> set[str]:
    parser = ArgumentParser()
    if subcommand:
        SUBCOMMANDS[subcommand[1]].add_arguments(parser)
    elif command != "mqlite":
        load_command_class("django_mqlite", command).add_arguments(parser)
    return set(re.findall(r"--[a-z-]+", parser.format_usage())) | {"--json", "--database"}


def test_codes_of_why_are_in_the_docs():
    codes = set(CODE.findall((PACKAGE / "verbs" / "explain.py").read_text(encoding="utf-8")))
    _, _, section = PAGE.partition("### The codes")
    table, _, _ = section.partition("\n## ")
    rows = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \|", table, re.MULTILINE)
    named = {code for row in rows for code in re.findall(r"`(\w+)`", row)} - {"code"}

    assert len(codes) >= 16
    assert codes == named
