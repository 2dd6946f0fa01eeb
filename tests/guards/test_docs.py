"""Links and pictures of the documentation lead to existing files."""

import re
from pathlib import Path

import pytest

from tests.support.pages import pages
from tests.support.source import ROOT

PAGES = pages()
LINK = re.compile(r"\]\((?!https?:|#)([^)#]+)(?:#[^)]*)?\)")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_and_pictures_exist(page: Path):
    targets = LINK.findall(page.read_text(encoding="utf-8"))

    assert [target for target in targets if not (page.parent / target).exists()] == []


def test_links_were_found():
    assert "docs/admin.md" in LINK.findall(PAGES[0].read_text(encoding="utf-8"))
