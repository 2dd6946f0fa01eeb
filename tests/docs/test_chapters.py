"""A chapter about a module of the store has what the code has."""

import importlib.util

import pytest

from tests.support.source import ROOT
from tests.support.statements import statements

pytest.importorskip("sphinx", reason="NOT TESTED: the extra [docs] is absent")


@pytest.fixture(scope="module")
def extension():
    path = ROOT / "docs" / "_ext" / "statements.py"
    spec = importlib.util.spec_from_file_location("statements_directive", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    module.empty_database().close()


@pytest.mark.parametrize("name", sorted({name.partition(".")[0] for name in statements()}))
def test_every_statement_is_shown_with_what_finds_its_rows(extension, name):
    text = extension.chapter(name)

    shown = [line.removeprefix("## ") for line in text.splitlines() if line.startswith("## ")]
    assert sorted(shown) == sorted(
        constant
        for module, _, constant in (each.partition(".") for each in statements())
        if module == name
    )
    assert "SCAN mqlite_messages" not in text


def test_a_statement_has_its_comment_its_plan_and_the_contract_of_its_function(extension):
    text = extension.chapter("settle")

    assert "a renewal never shortens a lease" in text
    assert "UPDATE mqlite_messages NOT INDEXED\n   SET locked_until" in text
    assert "SEARCH m USING INTEGER PRIMARY KEY (rowid=?)" in text
    assert "`renew()` executes it: Renew the leases from `now`" in text
