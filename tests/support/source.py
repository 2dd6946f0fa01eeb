"""The text files of the repository."""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "django_mqlite"
_FOLDERS = ("django_mqlite", "tests", "example_project", "docs", "benchmarks", ".ci")
_BINARY = {".gif", ".ico", ".jpg", ".mo", ".png", ".pyc", ".woff2"}


def python_files(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.py"))


def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def text_files() -> Iterator[Path]:
    """Return every text file of the project, without git: an unpacked sdist has none."""
    candidates = [*ROOT.iterdir(), *(p for name in _FOLDERS for p in (ROOT / name).rglob("*"))]
    for path in sorted(candidates):
        if path.name == ".git":  # a file in a linked worktree
            continue
        if path.is_file() and path.suffix not in _BINARY and "sqlite3" not in path.suffix:
            yield path
