"""The registry of workers: their entries, and which of them are dead."""

import os
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from django_mqlite.models import Message
from django_mqlite.types import WorkerRecord
from django_mqlite.verbs.workers import LIVE_WITHIN_MS, live_workers, register, registered_workers
from django_mqlite.worker import identity, registry
from django_mqlite.worker.identity import HOST_NAME_PREFIX, _process, this_process
from django_mqlite.worker.options import WorkerOptions
from django_mqlite.worker.registry import (
    WRITE_INTERVAL,
    WorkerEntry,
    other_machine,
    release_dead_workers,
)
from tests.support.another_user import result_as_another_user
from tests.support.verbs import claim_one, row_of, state_of

OTHER_BOOT = "another-boot"
ELSEWHERE = {"host": "far", "boot_id": OTHER_BOOT}
NO_PID = 2**22 + 1
PARENT = os.getppid()
ONE_QUEUE = ("--threads=1", "--queues=jobs")


@pytest.fixture
def time(monkeypatch):
    """The monotonic time of the registry, which the test moves."""
    fake = SimpleNamespace(now=1_000.0)
    fake.monotonic = lambda: fake.now
    monkeypatch.setattr(registry, "time", fake)
    return fake


@pytest.fixture
def entry(db, clock, time):
    return WorkerEntry(
        WorkerOptions(using="default", queues=("jobs", "more"), threads=3, name="w1")
    )


def writes(entry, in_flight=0) -> int:
    with CaptureQueriesContext(connection) as captured:
        entry.refresh(in_flight=in_flight)
    return sum("INSERT INTO mqlite_meta" in query["sql"] for query in captured)


def record(**facts) -> WorkerRecord:
    """Return an entry of this process, changed by the given facts."""
    me = this_process()
    values = {
        "worker": "w2",
        "host": me.host,
        "boot_id": me.boot_id,
        "pid_namespace": me.pid_namespace,
        "pid": me.pid,
        "process_started_at": me.started_at,
        "queues": ("jobs",),
        "slots": 1,
        "in_flight": 0,
        "started_at": 0,
    }
    return WorkerRecord(**{**values, **facts})


def held(queue, **options) -> Message:
    Message.objects.enqueue(str(queue), None)
    return claim_one(queue, **options)


# The entry


def test_entry_describes_the_worker(entry, clock):
    entry.refresh(in_flight=2)

    expected = record(worker="w1", queues=("jobs", "more"), slots=3, in_flight=2, pid=os.getpid())
    (entry,) = registered_workers("default")
    assert entry == replace(expected, started_at=clock.ms, seen_at=clock.ms)


def test_entry_is_written_every_15_seconds_at_most(entry, time):
    assert WRITE_INTERVAL == 15
    assert writes(entry) == 1
    time.now += WRITE_INTERVAL - 0.001
    assert [writes(entry, in_flight) for in_flight in range(5)] == [0] * 5

    time.now += 0.001

    assert writes(entry) == 1


def test_worker_removes_its_entry(entry):
    entry.refresh(in_flight=0)

    entry.remove()

    assert registered_workers("default") == []


# Workers that are dead


@pytest.fixture
def set_clock(tmp_path, monkeypatch):
    """Move the clock of the machine, as /proc shows it, by so many seconds."""

    def forward(seconds):
        stat = Path("/proc/stat").read_text(encoding="ascii")
        moved = re.sub(r"(?m)^btime (\d+)$", lambda m: f"btime {int(m[1]) + seconds}", stat)
        (tmp_path / "stat").write_text(moved, encoding="ascii")
        for pid in (PARENT, os.getpid()):
            (tmp_path / str(pid)).symlink_to(f"/proc/{pid}")
        monkeypatch.setattr(psutil, "PROCFS_PATH", str(tmp_path))

    return forward


@pytest.mark.skipif(not psutil.LINUX, reason="NOT TESTED: no /proc")
@pytest.mark.parametrize("seconds", [-3600, 1, 3600])
def test_live_process_is_not_dead_when_the_clock_is_set(set_clock, seconds):
    parent = _process(PARENT)
    before = psutil.Process(PARENT).create_time()

    set_clock(seconds)

    assert psutil.Process(PARENT).create_time() - before == pytest.approx(seconds)
    assert not parent.is_dead(seen_at=0)


IDENTITIES = {
    "this process": ({}, False),
    "its parent": ({"pid": PARENT, "started_at": _process(PARENT).started_at}, False),
    "reused pid": ({"started_at": -60.0}, True),
    "former boot": ({"boot_id": OTHER_BOOT}, True),
    "former boot of a container": ({"boot_id": OTHER_BOOT, "pid_namespace": 1}, True),
    "unknown boot": ({"boot_id": f"{HOST_NAME_PREFIX}here"}, False),
    "other host": ({"started_at": -60.0, **ELSEWHERE}, False),
    "other namespace": ({"started_at": -60.0, "pid_namespace": 1}, False),
    "no such pid": ({"pid": NO_PID}, True),
    "no such pid in another namespace": ({"pid": NO_PID, "pid_namespace": 1}, False),
}


@pytest.mark.parametrize(("facts", "dead"), IDENTITIES.values(), ids=IDENTITIES)
def test_only_a_visible_process_is_dead(facts, dead):
    assert replace(this_process(), **facts).is_dead(seen_at=0) is dead


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("facts", "state"),
    [
        ({"pid": NO_PID}, "active"),
        ({}, "locked"),
        (ELSEWHERE, "locked"),
        ({"pid_namespace": 1}, "locked"),
    ],
    ids=["dead", "alive", "other machine", "other namespace"],
)
def test_leases_of_dead_workers_only_are_released(queue, facts, state):
    register("default", record(**facts))
    message = held(queue, worker="w2")

    with CaptureQueriesContext(connection) as captured:
        assert release_dead_workers("default") == (state == "active")

    assert state_of(message) == state
    if state == "active":
        assert "its worker process is dead" in row_of(message)["errors"][0]["message"]
        assert registered_workers("default") == []
    else:
        assert [record.worker for record in registered_workers("default")] == ["w2"]
        assert all(query["sql"].lstrip().startswith("SELECT") for query in captured)


@pytest.mark.django_db
def test_stale_entry_of_another_machine_is_removed_its_leases_expire(queue, clock):
    register("default", record(**ELSEWHERE))
    message = held(queue, worker="w2", lock_duration=3_600)
    clock.advance(LIVE_WITHIN_MS / 1000)
    release_dead_workers("default")
    assert len(registered_workers("default")) == 1

    clock.advance(0.001)
    release_dead_workers("default")

    assert registered_workers("default") == []
    assert state_of(message) == "locked"


def test_killed_worker_is_noticed_by_another_within_two_seconds(database, busy):
    victim, message = busy("--queues=jobs", lease=600)
    other = database.start("--queues=more-jobs").wait_ready()
    database.wait_registered(2)

    victim.kill()
    database.wait_state(message, "active", seconds=2)

    database.wait_registered(1)
    assert [record.pid for record in registered_workers("worker")] == [other.pid]
    other.stop()
    assert registered_workers("worker") == []


# Other users


@pytest.mark.skipif(
    not (psutil.LINUX and os.geteuid() == 0), reason="NOT TESTED: only root becomes another user"
)
@pytest.mark.parametrize("hidepid", [0, 1, 2])
def test_live_process_of_another_user_is_not_dead(hidepid):
    alive = this_process()
    assert result_as_another_user(lambda: alive.is_dead(seen_at=0), hidepid=hidepid) is False

    dead = replace(alive, pid=NO_PID)
    assert result_as_another_user(lambda: dead.is_dead(seen_at=0), hidepid=hidepid) is True


# Before a reboot

SECOND = 1_000


@pytest.fixture
def boot(monkeypatch, clock):
    """The boot of this machine, half a minute ago by the queue's clock."""
    started = SimpleNamespace(at=clock.ms - 30 * SECOND)
    monkeypatch.setattr(psutil, "boot_time", lambda: started.at / SECOND)
    monkeypatch.setattr(identity, "_boot_times", [])
    return started


HEARTBEATS = {
    "before the boot": (-1, 0, "active", False),
    "at the boot": (0, 0, "locked", True),
    "after the boot": (10, 0, "locked", True),
    "at the boot, clock set forward": (0, 3_600, "locked", False),
    "after the boot, clock set forward": (10, 3_600, "locked", False),
    "in the future": (3_630, 0, "locked", False),
}


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("heartbeat", "set_forward", "state", "is_live"), HEARTBEATS.values(), ids=HEARTBEATS
)
def test_worker_of_another_boot_is_dead_if_its_heartbeat_is_older(
    queue, clock, boot, heartbeat, set_forward, state, is_live
):
    """A later heartbeat may be that of a clone of this machine, which still runs."""
    now, clock.ms = clock.ms, boot.at + heartbeat * SECOND
    register("default", record(boot_id=OTHER_BOOT))
    clock.ms = now
    message = held(queue, worker="w2", lock_duration=3 * 3_600)
    released = release_dead_workers("default")
    boot.at += set_forward * SECOND  # as every computed time of the boot moves with the clock
    clock.ms += set_forward * SECOND

    assert released + release_dead_workers("default") == (state == "active")

    assert state_of(message) == state
    assert (other_machine("default") is not None) == is_live


# Other machines


@pytest.mark.django_db
@pytest.mark.parametrize("direction", [1, -1], ids=["past", "future"])
@pytest.mark.parametrize(
    ("facts", "is_other"), [(ELSEWHERE, True), ({"pid_namespace": 1, "host": "container"}, False)]
)
def test_other_machine_has_another_boot_and_a_recent_heartbeat(clock, facts, is_other, direction):
    register("default", record(**facts))
    clock.advance(direction * LIVE_WITHIN_MS / 1000)
    assert len(live_workers("default")) == 1
    assert (other_machine("default") is not None) == is_other

    clock.advance(direction * 0.001)

    assert live_workers("default") == []
    assert other_machine("default") is None
    release_dead_workers("default")
    assert registered_workers("default") == []


def test_worker_waits_while_another_machine_uses_the_file(database):
    register("worker", record(worker="far:1:abcd", **ELSEWHERE))
    message = database.enqueue("jobs")
    worker = database.start(*ONE_QUEUE)
    worker.wait_said("worker far:1:abcd on another machine (far)")
    assert database.row(message)["delivery_count"] == 0
    assert worker.output.count("another machine") == 1

    ignoring = database.start(*ONE_QUEUE, "--ignore-other-machines", "--max-messages=1")
    assert ignoring.ended_well()
    assert database.state(message) == "gone"

    with database.other_program() as other:
        other.execute("DELETE FROM mqlite_meta WHERE key = 'worker:far:1:abcd'")
    worker.wait_ready().stop()


def test_worker_that_waits_for_another_machine_can_be_stopped(database):
    register("worker", record(worker="far:1:abcd", **ELSEWHERE))
    message = database.enqueue("jobs")
    worker = database.start(*ONE_QUEUE)
    worker.wait_said("on another machine")

    worker.stop()

    assert database.state(message) == "active"
    assert not psutil.pid_exists(worker.pid)


# Idle

POLLS = int(os.environ.get("MQLITE_TEST_IDLE_LOOKS", "50"))
"""Ten a second."""


def test_idle_worker_writes_its_entry_and_nothing_else(database):
    database.enqueue("jobs", delay=3_600)
    worker = database.start(*ONE_QUEUE).wait_ready()
    database.wait_registered(1)
    worker.wait_looks(5)
    seen_at, output = registered_workers("worker")[0].seen_at, worker.output

    with database.other_program() as other:
        wal = database.path.with_name(f"{database.path.name}-wal")
        size = wal.stat().st_size
        commits, version = 0, other.execute("PRAGMA data_version").fetchone()
        for _ in range(POLLS // 5):
            worker.wait_looks(5)
            now = other.execute("PRAGMA data_version").fetchone()
            commits, version = commits + (now != version), now
        seen_later = registered_workers("worker")[0].seen_at

    assert commits == round((seen_later - seen_at) / 1000 / WRITE_INTERVAL)
    assert wal.stat().st_size - size <= commits * 8_500  # two pages with their frames' heads
    assert worker.output == output
    worker.stop()
