"""Build the wheel and the sdist, check their contents, and install the wheel alone."""

import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from email import message_from_string
from pathlib import Path

import pytest

import django_mqlite
from tests.support.pages import blocks_of
from tests.support.source import PACKAGE, ROOT
from tests.support.walk import MARKS, Walk

# One process builds and installs, whatever the number of workers.
pytestmark = pytest.mark.xdist_group("package")

VERSION = django_mqlite.__version__
NAME = f"django_mqlite-{VERSION}"
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
TOP_LEVEL_OF_SDIST = {
    ".gitignore", "benchmarks", "CHANGELOG.md", "CONTRIBUTING.md", "django_mqlite", "docs",
    "example_project", "LICENSE", "Makefile", "noxfile.py", "PKG-INFO", "pyproject.toml",
    "README.md", "SECURITY.md", "tests",
}  # fmt: skip


def run(*command: object, seconds: float = 110, cwd: Path = ROOT) -> str:
    process = subprocess.run(
        list(map(str, command)),
        cwd=cwd,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    assert process.returncode == 0, process.stdout + process.stderr
    return process.stdout


def build(source: Path, target: str, into: Path) -> Path:
    run(sys.executable, "-m", "hatchling", "build", "-t", target, "-d", into, cwd=source)
    (built,) = into.iterdir()
    return built


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    return build(ROOT, "wheel", tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def sdist(tmp_path_factory) -> Path:
    return build(ROOT, "sdist", tmp_path_factory.mktemp("sdist"))


def files_in(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_wheel_is_named_by_version_and_runs_everywhere(wheel):
    assert wheel.name == f"{NAME}-py3-none-any.whl"


def test_wheel_contains_the_package_and_nothing_else(wheel):
    files = {name for name in files_in(wheel) if not name.startswith(f"{NAME}.dist-info/")}
    source = {
        path.relative_to(ROOT).as_posix()
        for path in PACKAGE.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }

    assert files == source
    assert {
        "django_mqlite/py.typed",
        "django_mqlite/migrations/0001_initial.py",
        "django_mqlite/templates/admin/django_mqlite/confirm.html",
    } <= files


def test_wheel_has_the_metadata_of_the_project(wheel):
    with zipfile.ZipFile(wheel) as archive:
        metadata = message_from_string(archive.read(f"{NAME}.dist-info/METADATA").decode())
        assert archive.read(f"{NAME}.dist-info/licenses/LICENSE")

    assert metadata["Name"] == "django-mqlite"
    assert metadata["Version"] == PYPROJECT["version"] == VERSION
    assert metadata["License-Expression"] == "MIT"
    assert metadata["Requires-Python"] == ">=3.11"
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert [line for line in metadata.get_all("Requires-Dist") if "extra ==" not in line] == sorted(
        dependency.lower() for dependency in PYPROJECT["dependencies"]
    )
    assert set(metadata.get_all("Provides-Extra")) == set(PYPROJECT["optional-dependencies"])
    assert "Typing :: Typed" in metadata.get_all("Classifier")


def test_versions_of_the_classifiers_are_in_the_docs():
    text = (ROOT / "docs" / "versions.md").read_text(encoding="utf-8")
    for row, classifier in (
        ("Python", "Programming Language :: Python :: 3."),
        ("Django", "Framework :: Django :: "),
    ):
        versions = [
            declared.rpartition(" ")[2]
            for declared in PYPROJECT["classifiers"]
            if declared.startswith(classifier)
        ]

        assert versions
        assert f"| {row} | {', '.join(versions)} |" in text


def test_extras_are_in_the_docs():
    text = (ROOT / "docs" / "versions.md").read_text(encoding="utf-8").partition("## Extras")[2]

    for extra in PYPROJECT["optional-dependencies"]:
        assert f"`{extra}`" in text


def test_sdist_contains_the_project_and_builds_the_wheel(sdist, wheel, tmp_path):
    with tarfile.open(sdist) as archive:
        names = {member.name for member in archive.getmembers()}
        archive.extractall(tmp_path, filter="data")

    rebuilt = build(tmp_path / NAME, "wheel", tmp_path / "wheel")

    assert {name.split("/")[1] for name in names} == TOP_LEVEL_OF_SDIST
    assert not [name for name in names if name.endswith((".pyc", ".sqlite3"))]
    assert files_in(rebuilt) == files_in(wheel)


@pytest.fixture(scope="module")
def bare(tmp_path_factory, wheel) -> Path:
    """Return the programs of an environment with the wheel and its dependencies."""
    directory = tmp_path_factory.mktemp("bare")
    run(sys.executable, "-m", "venv", directory)
    run(directory / "bin" / "python", "-m", "pip", "install", "--quiet", wheel, seconds=300)
    return directory / "bin"


@pytest.mark.skipif(shutil.which("curl") is None, reason="NOT TESTED: no curl")
def test_tutorial_works_with_the_wheel_alone(bare, tmp_path):
    walk = Walk(directory=tmp_path, binaries=bare, marks=MARKS)
    file = run(bare / "python", "-c", "import django_mqlite as m; print(m.__file__)", cwd=tmp_path)
    assert Path(file).is_relative_to(bare.parent)
    try:
        for step in blocks_of(ROOT / "docs" / "tutorial.md"):
            walk.follow(step)

        assert walk.end() == [0, 0]
    finally:
        walk.kill()
