"""The benchmarks: scenarios, the packages they are compared with, and results."""

import json
import re
import subprocess
import sys
from dataclasses import replace

import psutil
import pytest

from benchmarks.__main__ import expand_names, run_all
from benchmarks.peer_packages import PEERS, SCRIPTS, prepare, pythons
from benchmarks.peers import Contender, Drained, peer_contender, run_and_kill_children
from tests.support.source import ROOT
from tests.support.waiting import wait_until

SHARED = {"django_drain", "django_jobs", "django_project"}
CELLS = ("default, jobs/s", "FULL, jobs/s", "NORMAL, jobs/s")


def listed() -> set[str]:
    command = [sys.executable, "-m", "benchmarks", "list"]
    process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return {line.split()[0] for line in process.stdout.splitlines()}


def test_scenarios_in_the_docs_are_listed():
    text = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    named = set(re.findall(r"python -m benchmarks run (\w+)", text))

    assert named
    assert named <= listed() | {"all"}


def test_scenario_all_has_no_peers_unless_compared():
    everything = expand_names(["all"], compare=False)

    assert set(everything) == listed() - {"peers"}
    assert expand_names(["all", "cycle", "peers"], compare=True) == [*everything, "peers"]
    assert expand_names(["cycle", "enqueue", "cycle"], compare=False) == ["cycle", "enqueue"]
    assert expand_names(["cycle"], compare=True) == ["cycle", "peers"]


@pytest.mark.parametrize(
    ("arguments", "error"),
    [(["enqeue"], "invalid choice: 'enqeue'"), (["cycle", "idle", "--here"], "one scenario")],
    ids=["unknown name", "several in one process"],
)
def test_invalid_scenario_is_refused_before_any_runs(arguments, error):
    command = [sys.executable, "-m", "benchmarks", "run", *arguments]
    process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    assert process.returncode == 2
    assert error in process.stderr


def test_failed_scenario_keeps_the_results_of_others(tmp_path, monkeypatch):
    def apart(name):
        if name == "broken":
            raise RuntimeError(name)
        return {"rows": [{"name": name}]}

    monkeypatch.setattr("benchmarks.__main__.run_in_subprocess", apart)
    output = tmp_path / "results.json"

    with pytest.raises(RuntimeError):
        run_all(["cycle", "broken"], docs=False, output=output, here=False)

    assert json.loads(output.read_text()) == {"cycle": {"rows": [{"name": "cycle"}]}}


def test_peers_have_a_script_each():
    scripts = {path.stem for path in SCRIPTS.glob("*.py")}

    assert {peer.script for peer in PEERS} == scripts - SHARED


def test_peer_is_installed_with_a_suitable_python():
    this_version = (sys.version_info.major, sys.version_info.minor)

    assert next(pythons(this_version)) == sys.executable
    assert list(pythons((3, 99))) == []


@pytest.fixture
def making(monkeypatch, tmp_path):
    """Record the commands that make an environment; they are not run, but end with the codes."""
    made: list[str] = []
    codes: list[int | type[BaseException]] = []

    def run(command, **_):
        made.append(command[2])
        code = codes.pop(0)
        if not isinstance(code, int):
            raise code
        if command[2] == "venv":
            (command[-1] / "bin").mkdir(parents=True, exist_ok=True)
            (command[-1] / "bin" / "python").touch()
        return subprocess.CompletedProcess(command, code, "", "")

    monkeypatch.setattr("benchmarks.peer_packages.ENVIRONMENTS", tmp_path)
    monkeypatch.setattr("benchmarks.peer_packages.subprocess.run", run)
    return made, codes


@pytest.mark.parametrize("codes", [[1], [0, 1]], ids=["no environment", "no package"])
def test_failed_installation_of_a_peer_is_tried_again(making, codes):
    made, answers = making
    answers += [*codes, 0, 0]

    assert prepare(PEERS[0]) == "could not be installed"

    assert prepare(PEERS[0]) == ""
    assert made[-2:] == ["venv", "pip"]


def test_incomplete_environment_is_made_again(making):
    made, answers = making
    answers += [0, KeyboardInterrupt, 0, 0]
    with pytest.raises(KeyboardInterrupt):
        prepare(PEERS[0])

    assert [prepare(PEERS[0]), prepare(PEERS[0])] == ["", ""]

    assert made == ["venv", "pip", "venv", "pip"]


def test_environment_for_other_packages_is_made_again(making):
    made, answers = making
    answers += [0, 0, 0, 0]

    prepare(PEERS[0])
    prepare(replace(PEERS[0], packages=("huey==1",)))

    assert made == ["venv", "pip", "venv", "pip"]


def test_processes_of_a_peer_end_with_the_peer():
    script = (
        "import subprocess, sys; quiet = subprocess.DEVNULL;"
        "left = [sys.executable, '-c', 'import threading; threading.Event().wait(600)'];"
        "print(subprocess.Popen(left, stdout=quiet, stderr=quiet).pid)"
    )

    process = run_and_kill_children([sys.executable, "-c", script], {})

    wait_until(lambda: has_ended(int(process.stdout)), "the left process to end")


def has_ended(pid: int) -> bool:
    """Return whether a process has ended; an orphan may stay a zombie."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_peer_without_a_suitable_python_is_not_measured(monkeypatch, tmp_path):
    monkeypatch.setattr("benchmarks.peer_packages.ENVIRONMENTS", tmp_path)
    contender = peer_contender(replace(PEERS[0], min_python=(3, 99)))

    contender.measure("default")

    assert contender.row() == {
        "name": PEERS[0].name,
        "version": "",
        **dict.fromkeys(CELLS, "–"),
        "notes": "needs Python 3.99, which is not installed",
    }


def test_peer_that_failed_at_a_level_has_no_score():
    answers = iter([Drained(rate=10.0), Drained(rate=0.0, locked=3)])
    contender = Contender(name="peer", drain=lambda level: next(answers), note="no leases")

    for _ in range(3):
        contender.measure("FULL")

    assert contender.row()["FULL, jobs/s"] == "failed"
    assert contender.row()["default, jobs/s"] == "–"
    assert contender.row()["notes"] == "no leases; 3 × “database is locked”"


def test_rate_is_shown_with_its_spread():
    answers = iter([10.0, 30.0, 20.0])
    contender = Contender(name="peer", drain=lambda level: Drained(rate=next(answers)))

    for _ in range(3):
        contender.measure("NORMAL")

    assert contender.row()["NORMAL, jobs/s"] == "20 (10–30)"
