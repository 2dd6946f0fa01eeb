"""The benchmarks that docs/benchmarks.md names are there to be run."""

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
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return {line.split()[0] for line in done.stdout.splitlines()}


def test_every_scenario_that_the_docs_name_is_listed():
    text = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    named = set(re.findall(r"python -m benchmarks run (\w+)", text))

    assert named
    assert named <= listed() | {"all"}


def test_all_are_all_but_the_peers_unless_they_are_asked_for():
    everything = expand_names(["all"], compare=False)

    assert set(everything) == listed() - {"peers"}
    assert expand_names(["all", "cycle", "peers"], compare=True) == [*everything, "peers"]
    assert expand_names(["cycle", "enqueue", "cycle"], compare=False) == ["cycle", "enqueue"]
    assert expand_names(["cycle"], compare=True) == ["cycle", "peers"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(["enqeue"], "invalid choice: 'enqeue'"), (["cycle", "idle", "--here"], "one scenario")],
    ids=["a name that is not there", "several in one process"],
)
def test_what_cannot_be_run_is_told_before_anything_is(arguments, said):
    command = [sys.executable, "-m", "benchmarks", "run", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    assert done.returncode == 2
    assert said in done.stderr


def test_a_scenario_that_fails_takes_the_results_of_no_other_along(tmp_path, monkeypatch):
    def apart(name):
        if name == "broken":
            raise RuntimeError(name)
        return {"rows": [{"name": name}]}

    monkeypatch.setattr("benchmarks.__main__.run_in_subprocess", apart)
    output = tmp_path / "results.json"

    with pytest.raises(RuntimeError):
        run_all(["cycle", "broken"], docs=False, output=output, here=False)

    assert json.loads(output.read_text()) == {"cycle": {"rows": [{"name": "cycle"}]}}


def test_every_peer_has_a_script_of_its_own():
    scripts = {path.stem for path in SCRIPTS.glob("*.py")}

    assert {peer.script for peer in PEERS} == scripts - SHARED


def test_a_peer_is_installed_with_a_python_it_can_use():
    wanted = (sys.version_info.major, sys.version_info.minor)

    assert next(pythons(wanted)) == sys.executable
    assert list(pythons((3, 99))) == []


@pytest.fixture
def making(monkeypatch, tmp_path):
    """What is run to make an environment, without running it; it answers with these codes."""
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
def test_a_peer_that_cannot_be_installed_is_told_and_tried_again_the_next_time(making, codes):
    made, answers = making
    answers += [*codes, 0, 0]

    assert prepare(PEERS[0]) == "could not be installed"

    assert prepare(PEERS[0]) == ""
    assert made[-2:] == ["venv", "pip"]


def test_an_environment_that_was_left_half_made_is_made_anew(making):
    made, answers = making
    answers += [0, KeyboardInterrupt, 0, 0]
    with pytest.raises(KeyboardInterrupt):
        prepare(PEERS[0])

    assert [prepare(PEERS[0]), prepare(PEERS[0])] == ["", ""]

    assert made == ["venv", "pip", "venv", "pip"]


def test_an_environment_for_other_packages_is_made_anew(making):
    made, answers = making
    answers += [0, 0, 0, 0]

    prepare(PEERS[0])
    prepare(replace(PEERS[0], packages=("huey==1",)))

    assert made == ["venv", "pip", "venv", "pip"]


def test_what_a_peer_has_started_ends_with_it():
    script = (
        "import subprocess, sys; quiet = subprocess.DEVNULL;"
        "left = [sys.executable, '-c', 'import threading; threading.Event().wait(600)'];"
        "print(subprocess.Popen(left, stdout=quiet, stderr=quiet).pid)"
    )

    done = run_and_kill_children([sys.executable, "-c", script], {})

    wait_until(lambda: ended(int(done.stdout)), "what it has left to end")


def ended(pid: int) -> bool:
    """An orphan stays a zombie where nobody is there to take it."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_a_peer_that_no_python_here_can_run_is_told_and_not_measured(monkeypatch, tmp_path):
    monkeypatch.setattr("benchmarks.peer_packages.ENVIRONMENTS", tmp_path)
    contender = peer_contender(replace(PEERS[0], min_python=(3, 99)))

    contender.measure("default")

    assert contender.row() == {
        "name": PEERS[0].name,
        "version": "",
        **dict.fromkeys(CELLS, "–"),
        "notes": "needs Python 3.99, which is not installed",
    }


def test_a_peer_that_failed_at_a_level_is_told_so_and_not_scored():
    answers = iter([Drained(rate=10.0), Drained(rate=0.0, locked=3)])
    contender = Contender(name="peer", drain=lambda level: next(answers), note="no leases")

    for _ in range(3):
        contender.measure("FULL")

    assert contender.row()["FULL, jobs/s"] == "failed"
    assert contender.row()["default, jobs/s"] == "–"
    assert contender.row()["notes"] == "no leases; 3 × “database is locked”"


def test_a_rate_is_told_with_its_spread():
    answers = iter([10.0, 30.0, 20.0])
    contender = Contender(name="peer", drain=lambda level: Drained(rate=next(answers)))

    for _ in range(3):
        contender.measure("NORMAL")

    assert contender.row()["NORMAL, jobs/s"] == "20 (10–30)"
