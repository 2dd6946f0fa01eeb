"""The wheel and the sdist are built, looked through, and installed where nothing else is."""

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
    done = subprocess.run(
        list(map(str, command)),
        cwd=cwd,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


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


def test_the_wheel_is_called_by_its_version_and_runs_everywhere(wheel):
    assert wheel.name == f"{NAME}-py3-none-any.whl"


def test_the_wheel_holds_the_package_and_nothing_else(wheel):
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


def test_the_wheel_says_what_it_is(wheel):
    with zipfile.ZipFile(wheel) as archive:
        said = message_from_string(archive.read(f"{NAME}.dist-info/METADATA").decode())
        assert archive.read(f"{NAME}.dist-info/licenses/LICENSE")

    assert said["Name"] == "django-mqlite"
    assert said["Version"] == PYPROJECT["version"] == VERSION
    assert said["License-Expression"] == "MIT"
    assert said["Requires-Python"] == ">=3.11"
    assert said["Description-Content-Type"] == "text/markdown"
    assert [each for each in said.get_all("Requires-Dist") if "extra ==" not in each] == sorted(
        each.lower() for each in PYPROJECT["dependencies"]
    )
    assert set(said.get_all("Provides-Extra")) == set(PYPROJECT["optional-dependencies"])
    assert "Typing :: Typed" in said.get_all("Classifier")


def test_the_versions_of_the_classifiers_are_the_ones_that_the_documentation_says():
    text = (ROOT / "docs" / "versions.md").read_text(encoding="utf-8")
    for row, classifier in (
        ("Python", "Programming Language :: Python :: 3."),
        ("Django", "Framework :: Django :: "),
    ):
        declared = [
            each.rpartition(" ")[2]
            for each in PYPROJECT["classifiers"]
            if each.startswith(classifier)
        ]

        assert declared
        assert f"| {row} | {', '.join(declared)} |" in text


def test_every_extra_is_in_the_documentation():
    text = (ROOT / "docs" / "versions.md").read_text(encoding="utf-8").partition("## Extras")[2]

    for extra in PYPROJECT["optional-dependencies"]:
        assert f"`{extra}`" in text


def test_the_sdist_holds_the_project_and_a_wheel_can_be_built_from_it(sdist, wheel, tmp_path):
    with tarfile.open(sdist) as archive:
        names = {member.name for member in archive.getmembers()}
        archive.extractall(tmp_path, filter="data")

    rebuilt = build(tmp_path / NAME, "wheel", tmp_path / "wheel")

    assert {name.split("/")[1] for name in names} == TOP_LEVEL_OF_SDIST
    assert not [name for name in names if name.endswith((".pyc", ".sqlite3"))]
    assert files_in(rebuilt) == files_in(wheel)


@pytest.fixture(scope="module")
def bare(tmp_path_factory, wheel) -> Path:
    """The programs of an environment with the wheel and what it asks for."""
    directory = tmp_path_factory.mktemp("bare")
    run(sys.executable, "-m", "venv", directory)
    run(directory / "bin" / "python", "-m", "pip", "install", "--quiet", wheel, seconds=300)
    return directory / "bin"


@pytest.mark.skipif(shutil.which("curl") is None, reason="NOT TESTED: no curl")
def test_the_tutorial_can_be_followed_with_the_wheel_in_a_bare_environment(bare, tmp_path):
    walk = Walk(directory=tmp_path, binaries=bare, marks=MARKS)
    where = run(bare / "python", "-c", "import django_mqlite as m; print(m.__file__)", cwd=tmp_path)
    assert Path(where).is_relative_to(bare.parent)
    try:
        for step in blocks_of(ROOT / "docs" / "tutorial.md"):
            walk.follow(step)

        assert walk.end() == [0, 0]
    finally:
        walk.kill()
