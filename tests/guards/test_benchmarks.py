"""The benchmarks that docs/benchmarks.md names are there to be run."""

import re
import subprocess
import sys
from dataclasses import replace

from benchmarks.peer_packages import PEERS, SCRIPTS, pythons
from benchmarks.peers import Contender, Drained, theirs
from tests.support.source import ROOT

SHARED = {"django_drain", "django_jobs", "django_project"}
CELLS = ("default, jobs/s", "FULL, jobs/s", "NORMAL, jobs/s")


def listed() -> set[str]:
    command = [sys.executable, "-m", "benchmarks", "list"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return {line.split()[0] for line in done.stdout.splitlines()}


def test_every_scenario_that_the_docs_name_is_listed():
    text = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    named = set(re.findall(r"python -m benchmarks run (\w+)", text))

    assert named
    assert named <= listed() | {"all"}


def test_every_peer_has_a_script_of_its_own():
    scripts = {path.stem for path in SCRIPTS.glob("*.py")}

    assert {peer.script for peer in PEERS} == scripts - SHARED


def test_a_peer_is_installed_with_a_python_it_can_use():
    wanted = (sys.version_info.major, sys.version_info.minor)

    assert next(pythons(wanted)) == sys.executable
    assert list(pythons((3, 99))) == []


def test_a_peer_that_no_python_here_can_run_is_told_and_not_measured(monkeypatch, tmp_path):
    monkeypatch.setattr("benchmarks.peer_packages.ENVIRONMENTS", tmp_path)
    contender = theirs(replace(PEERS[0], needs=(3, 99)))

    contender.measure("default")

    assert contender.row() == {
        "name": PEERS[0].name,
        "version": "",
        **dict.fromkeys(CELLS, "–"),
        "to know": "needs Python 3.99, which is not here",
    }


def test_a_peer_that_failed_at_a_level_is_told_so_and_not_scored():
    answers = iter([Drained(rate=10.0), Drained(rate=0.0, locked=3)])
    contender = Contender(name="peer", drain=lambda level: next(answers), said="no leases")

    for _ in range(3):
        contender.measure("FULL")

    assert contender.row()["FULL, jobs/s"] == "failed"
    assert contender.row()["default, jobs/s"] == "–"
    assert contender.row()["to know"] == "no leases; 3 × “database is locked”"


def test_a_rate_is_told_with_its_spread():
    answers = iter([10.0, 30.0, 20.0])
    contender = Contender(name="peer", drain=lambda level: Drained(rate=next(answers)))

    for _ in range(3):
        contender.measure("NORMAL")

    assert contender.row()["NORMAL, jobs/s"] == "20 (10–30)"
