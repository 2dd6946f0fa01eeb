"""The documentation as its readers see it: pages, and the fenced blocks in them."""

import re
from dataclasses import dataclass
from pathlib import Path

from tests.support.source import ROOT

FENCE = re.compile(r"^( *)(`{3,}|~{3,})(.*)$")
ROOT_PAGES = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
MARK = re.compile(r"^<!-- test: (.+) -->$")


@dataclass(frozen=True, kw_only=True)
class Block:
    """A fenced block, or a mark between blocks, which names what a test does there."""

    page: str
    line: int
    language: str
    text: str

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"


def pages() -> list[Path]:
    """Return the pages in the root of the repository and every page of the documentation."""
    return [*(ROOT / name for name in ROOT_PAGES), *sorted((ROOT / "docs").rglob("*.md"))]


def blocks_of(path: Path) -> list[Block]:
    """Return the blocks and marks of the page, in order."""
    page = path.relative_to(ROOT).as_posix()
    blocks: list[Block] = []
    lines = iter(enumerate(path.read_text(encoding="utf-8").splitlines(), start=1))
    for number, line in lines:
        if mark := MARK.match(line):
            blocks.append(Block(page=page, line=number, language="test", text=mark[1]))
        elif fence := FENCE.match(line):
            indent, ticks, language = fence.groups()
            inside = []
            for _, inner in lines:
                if inner.strip() == ticks:
                    break
                inside.append(inner.removeprefix(indent))
            text = "".join(f"{line}\n" for line in inside)
            blocks.append(Block(page=page, line=number, language=language.strip(), text=text))
    return blocks


def every_block() -> list[Block]:
    return [block for page in pages() for block in blocks_of(page)]


@dataclass(frozen=True, kw_only=True)
class Call:
    """A command of a console block, and the output shown below it, or ""."""

    command: str
    shown: str


def calls_of(block: Block) -> list[Call]:
    """Return the commands after each `$ `, without their comments."""
    calls: list[Call] = []
    for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
        command, _, shown = part.partition("\n")
        calls.append(Call(command=re.sub(r"\s+# .*", "", command), shown=shown.strip()))
    return calls
