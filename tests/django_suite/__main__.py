"""Download the source distribution of the installed Django, and run its tests on the engine."""

import argparse
import os
import subprocess
import sys
import tarfile
from pathlib import Path
from tempfile import TemporaryDirectory

import django

ROOT = Path(__file__).resolve().parents[2]
SHORT = (
    "backends",
    "transactions",
    "transaction_hooks",
    "test_utils",
    "queries",
    "migrations",
    "schema",
)
WHOLE_AT_LEAST = "15000"
SHORT_AT_LEAST = "1800"
"""Tests that run and are not skipped; releases of Django differ by a few hundred."""


def download(directory: Path) -> Path:
    """Return the unpacked source distribution of the Django in use."""
    release = f"Django=={django.__version__}"
    command = ("pip", "download", "--quiet", "--no-deps", "--no-binary", "Django", release)
    subprocess.run([sys.executable, "-m", *command, "--dest", directory], check=True)
    (archive,) = directory.glob("*.tar.gz")
    with tarfile.open(archive) as source:
        source.extractall(directory, filter="data")
    (unpacked,) = (path for path in directory.iterdir() if path.is_dir())
    return unpacked


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.django_suite", description=__doc__)
    parser.add_argument("--short", action="store_true", help=f"only {', '.join(SHORT)}")
    parser.add_argument("--files", action="store_true", help="in files, not in memory")
    options = parser.parse_args()
    with TemporaryDirectory(prefix="django-suite-") as name:
        source = Path(name) / "source"
        files = Path(name) / "files"
        source.mkdir()
        files.mkdir()
        environment = os.environ | {
            "PYTHONPATH": str(ROOT),
            "MQLITE_DJANGO_SUITE_AT_LEAST": SHORT_AT_LEAST if options.short else WHOLE_AT_LEAST,
            "MQLITE_DJANGO_SUITE_FILES": str(files) if options.files else "",
        }
        command = [sys.executable, "runtests.py", "--settings", "tests.django_suite.settings"]
        # On a file, backends.sqlite.tests.ThreadSharing closes the connection of all tests to come,
        # on Django's engine too, if no test of its process has opened it before.
        processes = "1" if options.files else "2"
        tests = SHORT if options.short else ()
        return subprocess.run(
            [*command, "--parallel", processes, *tests],
            cwd=download(source) / "tests",
            env=environment,
            check=False,
        ).returncode


if __name__ == "__main__":
    sys.exit(main())
