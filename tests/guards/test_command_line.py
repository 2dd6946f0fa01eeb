"""The docs have every command with its options, and every code of `why`."""

import re
import shlex
from argparse import ArgumentParser

import pytest
from django.core.management import load_command_class

from django_mqlite.management.cli import SUBCOMMANDS
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
