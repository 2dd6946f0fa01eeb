"""docs/conformance.md cites existing tests for every rule, and tests name existing rules."""

import ast
import re
from functools import cache

import pytest

from tests.support.source import ROOT, python_files, tree_of

DOCUMENT = ROOT / "docs" / "conformance.md"
RULES_OF_SECTION = {
    1: 11,
    2: 7,
    3: 11,
    4: 5,
    5: 6,
    6: 7,
    7: 6,
    8: 6,
    9: 8,
    10: 7,
    11: 3,
    12: 9,
    13: 10,
    14: 6,
    15: 9,
    16: 5,
    17: 10,
    18: 4,
    19: 7,
    20: 5,
    21: 4,
    22: 3,
    23: 4,
    24: 6,
}
RULES = [f"{n}.{m}" for n, count in RULES_OF_SECTION.items() for m in range(1, count + 1)]

# Rules that are promised but not proven, which the document must say too. Each entry is a debt:
# remove it when there is a proof, and add none to make this test pass.
WITHOUT_PROOF: set[str] = set()
PROVEN_IN_PART = {"8.1", "12.2", "15.3"}

RULE = re.compile(r"^\*\*(\d+\.\d+)\*\* ", re.MULTILINE)
CITATION = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def promised_and_open():
    """Return the document up to the unproven rules, and the unproven rules."""
    promised, heading, unproven = DOCUMENT.read_text(encoding="utf-8").partition(
        "## Not yet proven"
    )
    assert heading
    return promised, unproven


def citations():
    """Return the tests that each rule cites."""
    promised, _ = promised_and_open()
    _, *parts = RULE.split(promised)
    texts = zip(parts[::2], parts[1::2], strict=True)
    return {rule: CITATION.findall(text) for rule, text in texts}


@cache
def functions_of(path):
    file = ROOT / path
    if not file.is_file():
        return frozenset()
    return frozenset(node.name for node in tree_of(file).body if isinstance(node, ast.FunctionDef))


def marks():
    """Yield the rules that tests are marked with, and their files."""
    for path in python_files(ROOT / "tests"):
        for node in ast.walk(tree_of(path)):
            match node:
                case ast.Call(
                    func=ast.Attribute(value=ast.Attribute(attr="mark"), attr="rule"),
                    args=[ast.Constant(value=rule)],
                ):
                    yield rule, path.relative_to(ROOT).as_posix()


def test_conformance_has_every_rule_once_and_in_order():
    promised, _ = promised_and_open()

    assert RULE.findall(promised) == RULES


@pytest.mark.parametrize("rule", RULES)
def test_rule_cites_tests_that_exist(rule):
    cited = citations()[rule]

    assert [f"{path}::{name}" for path, name in cited if name not in functions_of(path)] == []
    assert all(name.startswith("test_") for _, name in cited)
    assert bool(cited) != (rule in WITHOUT_PROOF)


def test_citations_belong_to_a_rule_or_the_introduction():
    promised, unproven = promised_and_open()
    introduction, _, _ = promised.partition("## 1 ")

    for path, name in CITATION.findall(introduction):
        assert name in functions_of(path)
    assert CITATION.findall(unproven) == []


def test_unproven_rules_are_those_that_are_known():
    _, unproven = promised_and_open()

    assert set(re.findall(r"^\| (\d+\.\d+) \|", unproven, re.MULTILINE)) == (
        WITHOUT_PROOF | PROVEN_IN_PART
    )


def test_marks_name_rules_that_exist():
    marked = list(marks())

    assert len(marked) > 100
    assert [(rule, path) for rule, path in marked if rule not in RULES] == []


def test_proven_rules_have_a_marked_test():
    marked = {rule for rule, _ in marks()}

    assert set(RULES) - marked == WITHOUT_PROOF
