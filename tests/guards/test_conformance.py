"""docs/conformance.md cites tests that exist, for every rule, and tests prove rules that exist."""

import ast
import re
from functools import cache

import pytest

from tests.support.source import ROOT, python_files, tree_of

DOCUMENT = ROOT / "docs" / "conformance.md"
RULES_OF_SECTION = {1: 10, 2: 7, 3: 8, 4: 5, 5: 6, 6: 7, 7: 5, 8: 6, 9: 6, 10: 7, 11: 3, 13: 10}
RULES = [f"{n}.{m}" for n, count in RULES_OF_SECTION.items() for m in range(1, count + 1)]

# What is promised and not proven, as the document has to say too. Each entry is a debt: take it
# away when the proof is there, and add none to make this test pass.
WITHOUT_PROOF: set[str] = set()
PROVEN_IN_PART = {"8.1"}

RULE = re.compile(r"^\*\*(\d+\.\d+)\*\* ", re.MULTILINE)
CITATION = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def promised_and_open():
    """The document up to what is not yet proven, and that."""
    promised, found, unproven = DOCUMENT.read_text(encoding="utf-8").partition("## Not yet proven")
    assert found
    return promised, unproven


def citations():
    """The tests that each rule cites."""
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
    """Every rule that a test says it proves, with its file."""
    for path in python_files(ROOT / "tests"):
        for node in ast.walk(tree_of(path)):
            match node:
                case ast.Call(
                    func=ast.Attribute(value=ast.Attribute(attr="mark"), attr="rule"),
                    args=[ast.Constant(value=rule)],
                ):
                    yield rule, path.relative_to(ROOT).as_posix()


def test_the_document_has_every_rule_once_and_in_order():
    promised, _ = promised_and_open()

    assert RULE.findall(promised) == RULES


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_cites_tests_that_exist(rule):
    cited = citations()[rule]

    assert [f"{path}::{name}" for path, name in cited if name not in functions_of(path)] == []
    assert all(name.startswith("test_") for _, name in cited)
    assert bool(cited) != (rule in WITHOUT_PROOF)


def test_every_citation_belongs_to_a_rule_or_the_introduction():
    promised, unproven = promised_and_open()
    introduction, _, _ = promised.partition("## 1 ")

    for path, name in CITATION.findall(introduction):
        assert name in functions_of(path)
    assert CITATION.findall(unproven) == []


def test_what_is_not_yet_proven_is_said_and_is_no_more_than_is_known():
    _, unproven = promised_and_open()

    assert set(re.findall(r"^\| (\d+\.\d+) \|", unproven, re.MULTILINE)) == (
        WITHOUT_PROOF | PROVEN_IN_PART
    )


def test_a_test_proves_a_rule_that_there_is():
    found = list(marks())

    assert len(found) > 100
    assert [(rule, path) for rule, path in found if rule not in RULES] == []


def test_every_proven_rule_has_a_test_that_says_so():
    marked = {rule for rule, _ in marks()}

    assert set(RULES) - marked == WITHOUT_PROOF
