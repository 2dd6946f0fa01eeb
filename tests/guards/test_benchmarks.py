"""The benchmarks that docs/benchmarks.md names are there to be run."""

import re
import subprocess
import sys

from tests.support.source import ROOT


def listed() -> set[str]:
    command = [sys.executable, "-m", "benchmarks", "list"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return {line.split()[0] for line in done.stdout.splitlines()}


def test_every_scenario_that_the_docs_name_is_listed():
    text = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    named = set(re.findall(r"python -m benchmarks run (\w+)", text))

    assert named
    assert named <= listed() | {"all"}
