"""The chapters about the store show every statement of its modules."""

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
def test_chapter_shows_every_statement_with_its_plan(extension, name):
    text = extension.chapter(name)

    shown = [line.removeprefix("## ") for line in text.splitlines() if line.startswith("## ")]
    constants = [constant.split(".") for constant in statements()]
    assert sorted(shown) == sorted(constant for module, constant in constants if module == name)
    assert "SCAN mqlite_messages" not in text


def test_statement_has_its_comment_plan_and_contract(extension):
    text = extension.chapter("settle")

    assert "a renewal never shortens a lease" in text
    assert "UPDATE mqlite_messages NOT INDEXED\n   SET locked_until" in text
    assert "SEARCH m USING INTEGER PRIMARY KEY (rowid=?)" in text
    assert "`renew()` executes it: Renew the leases from `now`" in text
