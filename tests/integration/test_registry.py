"""Who is at work on the file: told by each worker, believed only of processes that can be seen."""

import os
import re
import signal
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
from django_mqlite.worker.identity import NAMELESS, ProcessIdentity, _process, this_process
from django_mqlite.worker.options import WorkerOptions
from django_mqlite.worker.registry import (
    WRITE_INTERVAL,
    WorkerEntry,
    other_machine,
    release_gone,
)
from tests.support.another_user import judged_by_another_user
from tests.support.verbs import claim_one, row_of, state_of
from tests.support.waiting import wait_until

OTHER_BOOT = "another-boot"
ELSEWHERE = {"host": "far", "boot_id": OTHER_BOOT}
PARENT = os.getppid()
ONLY_US = ("--threads=1", "--queues=jobs")


@pytest.fixture
def time(monkeypatch):
    """The time of day for the registry, moved by the test."""
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
    """Of this very process, unless said otherwise."""
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


def test_registry_entry_describes_the_worker(entry, clock):
    entry.refresh(in_flight=2)

    (found,) = registered_workers("default")
    assert found == replace(
        record(worker="w1", queues=("jobs", "more"), slots=3, in_flight=2),
        started_at=clock.ms,
        seen_at=clock.ms,
    )
    assert found.pid == os.getpid()


def test_registry_entry_is_written_every_15_seconds_at_most(entry, time):
    assert WRITE_INTERVAL == 15
    assert writes(entry) == 1
    time.now += WRITE_INTERVAL - 0.001
    assert [writes(entry, in_flight) for in_flight in range(5)] == [0] * 5

    time.now += 0.001

    assert writes(entry) == 1


def test_worker_removes_its_entry_from_the_register(entry):
    entry.refresh(in_flight=0)

    entry.remove()

    assert registered_workers("default") == []


# Those that are gone


@pytest.fixture
def set_clock(tmp_path, monkeypatch):
    """Sets the clock of the machine forward by so many seconds, as /proc tells of it."""

    def forward(seconds):
        told = re.sub(
            r"(?m)^btime (\d+)$",
            lambda found: f"btime {int(found[1]) + seconds}",
            Path("/proc/stat").read_text(encoding="ascii"),
        )
        (tmp_path / "stat").write_text(told, encoding="ascii")
        for pid in (PARENT, os.getpid()):
            (tmp_path / str(pid)).symlink_to(f"/proc/{pid}")
        monkeypatch.setattr(psutil, "PROCFS_PATH", str(tmp_path))

    return forward


def test_a_process_that_lives_is_not_gone():
    assert not this_process().is_gone(seen_at=0)
    assert not _process(PARENT).is_gone(seen_at=0)


@pytest.mark.skipif(not psutil.LINUX, reason="NOT TESTED: no /proc")
@pytest.mark.parametrize("seconds", [-3600, 1, 3600])
def test_a_process_that_lives_is_not_gone_because_the_clock_was_set(set_clock, seconds):
    parent = _process(PARENT)
    before = psutil.Process(PARENT).create_time()

    set_clock(seconds)

    assert psutil.Process(PARENT).create_time() - before == pytest.approx(seconds)
    assert not parent.is_gone(seen_at=0)


@pytest.mark.parametrize(
    ("facts", "gone"),
    [
        ({"started_at": -60.0}, True),
        ({"boot_id": OTHER_BOOT}, True),
        ({"boot_id": OTHER_BOOT, "pid_namespace": 1}, True),
        ({"boot_id": f"{NAMELESS}here"}, False),
        ({"started_at": -60.0, **ELSEWHERE}, False),
        ({"started_at": -60.0, "pid_namespace": 1}, False),
        ({"pid": 2**22 + 1}, True),
        ({"pid": 2**22 + 1, "pid_namespace": 1}, False),
    ],
    ids=[
        "reused pid",
        "former boot",
        "former boot of a container",
        "boot that cannot be told",
        "other host",
        "other namespace",
        "no such pid",
        "no such pid elsewhere",
    ],
)
def test_only_a_process_that_we_could_see_is_judged(facts, gone):
    found: ProcessIdentity = replace(this_process(), **facts)

    assert found.is_gone(seen_at=0) is gone


@pytest.mark.django_db
def test_what_a_process_that_is_gone_held_is_released_at_once(queue):
    register("default", record(pid=2**22 + 1))
    message = held(queue, worker="w2")

    assert release_gone("default") == 1

    assert state_of(message) == "active"
    assert "its worker process is gone" in row_of(message)["errors"][0]["message"]
    assert registered_workers("default") == []


@pytest.mark.django_db
@pytest.mark.parametrize(
    "facts", [{}, ELSEWHERE, {"pid_namespace": 1}], ids=["alive", "machine", "namespace"]
)
def test_a_live_lease_of_one_that_cannot_be_judged_is_left_alone(queue, facts):
    register("default", record(**facts))
    message = held(queue, worker="w2")

    assert release_gone("default") == 0

    assert state_of(message) == "locked"
    assert [found.worker for found in registered_workers("default")] == ["w2"]


@pytest.mark.django_db
def test_stale_entry_of_another_machine_is_removed_its_leases_expire(queue, clock):
    register("default", record(**ELSEWHERE))
    message = held(queue, worker="w2", lock_duration=3_600)
    clock.advance(LIVE_WITHIN_MS / 1000)
    release_gone("default")
    assert len(registered_workers("default")) == 1

    clock.advance(0.001)
    release_gone("default")

    assert registered_workers("default") == []
    assert state_of(message) == "locked"


@pytest.mark.django_db
def test_a_look_at_the_living_only_reads(queue):
    register("default", record())

    with CaptureQueriesContext(connection) as captured:
        release_gone("default")

    assert all(query["sql"].lstrip().startswith("SELECT") for query in captured)


def test_a_killed_worker_is_noticed_by_another_within_two_seconds(database):
    database.queue("jobs", lock_duration=600)
    steps = {"started": database.file("started"), "wait_for": database.file("go-on")}
    message = database.enqueue("jobs", steps)
    victim = database.start(*ONLY_US)
    wait_until((database.beside / "started.1").exists, "the handler to start")
    other = database.start("--queues=more-jobs").wait_ready()
    wait_until(lambda: len(registered_workers("worker")) == 2, "both to register")

    victim.kill()
    wait_until(lambda: database.state(message) == "active", "the release", seconds=2)

    wait_until(
        lambda: [found.pid for found in registered_workers("worker")] == [other.pid], "it to go"
    )
    other.terminate()
    assert other.ended_well()
    assert registered_workers("worker") == []


# Other users


@pytest.mark.skipif(
    not (psutil.LINUX and os.geteuid() == 0), reason="NOT TESTED: only root becomes another user"
)
@pytest.mark.parametrize("hidepid", [0, 1, 2])
def test_a_process_of_another_user_that_lives_is_not_gone(hidepid):
    alive = this_process()
    assert judged_by_another_user(lambda: alive.is_gone(seen_at=0), hidepid=hidepid) is False

    dead = replace(alive, pid=2**22 + 1)
    assert judged_by_another_user(lambda: dead.is_gone(seen_at=0), hidepid=hidepid) is True


# Before the machine was started again

SECOND = 1_000


@pytest.fixture
def boot(monkeypatch, clock):
    """The start of this machine: half a minute ago, by the queue's clock."""
    started = SimpleNamespace(at=clock.ms - 30 * SECOND)
    monkeypatch.setattr(psutil, "boot_time", lambda: started.at / SECOND)
    monkeypatch.setattr(identity, "_boot_times", [])
    return started


def seen(clock, at: int) -> None:
    """Write an entry of another boot under this host's name, with its last heartbeat at `at`."""
    now, clock.ms = clock.ms, at
    register("default", record(boot_id=OTHER_BOOT))
    clock.ms = now


@pytest.mark.django_db
def test_after_a_reboot_nobody_waits_for_the_workers_before_it(queue, clock, boot):
    seen(clock, boot.at - SECOND)
    message = held(queue, worker="w2", lock_duration=3_600)

    assert other_machine("default") is None
    assert release_gone("default") == 1

    assert state_of(message) == "active"
    assert registered_workers("default") == []


@pytest.mark.django_db
@pytest.mark.parametrize("set_forward", [0, 3_600 * SECOND])
@pytest.mark.parametrize("since_boot", [0, 10 * SECOND])
def test_living_clone_of_this_machine_keeps_its_leases(queue, clock, boot, since_boot, set_forward):
    seen(clock, boot.at + since_boot)
    message = held(queue, worker="w2", lock_duration=3 * 3_600)
    assert release_gone("default") == 0
    boot.at += set_forward  # as every computed time of the boot moves with the clock
    clock.ms += set_forward

    assert release_gone("default") == 0

    assert state_of(message) == "locked"
    live = other_machine("default")
    assert (live is None) == bool(set_forward)  # by that clock its last heartbeat is an hour old


@pytest.mark.django_db
def test_clock_behind_after_a_reboot_leaves_former_workers_to_their_leases(queue, clock, boot):
    seen(clock, clock.ms + 3_600 * SECOND)
    message = held(queue, worker="w2")

    assert other_machine("default") is None
    assert release_gone("default") == 0

    assert state_of(message) == "locked"


@pytest.mark.django_db
def test_an_entry_from_the_future_holds_nobody_up(clock):
    register("default", record(**ELSEWHERE))

    clock.advance(-LIVE_WITHIN_MS / 1000)
    assert len(live_workers("default")) == 1
    assert other_machine("default").worker == "w2"

    clock.advance(-0.001)
    assert live_workers("default") == []
    assert other_machine("default") is None
    release_gone("default")
    assert registered_workers("default") == []


# Other machines


@pytest.mark.django_db
def test_another_machine_has_another_boot_and_name_and_is_recent(clock):
    register("default", record(**ELSEWHERE))
    assert other_machine("default").worker == "w2"

    clock.advance(LIVE_WITHIN_MS / 1000 + 0.001)

    assert other_machine("default") is None


@pytest.mark.django_db
def test_a_container_of_this_machine_is_no_other_machine(clock):
    register("default", record(pid_namespace=1, host="container"))

    assert other_machine("default") is None


def test_a_worker_waits_while_another_machine_is_at_work_on_the_file(database):
    register("worker", record(worker="far:1:abcd", **ELSEWHERE))
    message = database.enqueue("jobs")
    worker = database.start(*ONLY_US)
    worker.wait_said("worker far:1:abcd on another machine (far)")
    assert database.row(message)["delivery_count"] == 0
    assert worker.output.count("another machine") == 1

    ignoring = database.start(*ONLY_US, "--ignore-other-machines", "--max-messages=1")
    assert ignoring.ended_well()
    assert database.state(message) == "gone"

    with database.other_program() as other:
        other.execute("DELETE FROM mqlite_meta WHERE key = 'worker:far:1:abcd'")
    worker.wait_ready()
    worker.signal(signal.SIGTERM)
    assert worker.ended_well()


def test_a_worker_that_waits_for_another_machine_can_be_stopped(database):
    register("worker", record(worker="far:1:abcd", **ELSEWHERE))
    database.enqueue("jobs")
    worker = database.start(*ONLY_US)
    worker.wait_said("on another machine")

    worker.terminate()

    assert worker.ended_well()
    assert database.handled() == []
    assert not psutil.pid_exists(worker.pid)
    assert Message.objects.using("worker").count() == 1


# Idle

LOOKS = int(os.environ.get("MQLITE_TEST_IDLE_LOOKS", "50"))
"""Ten a second."""


def test_an_idle_worker_writes_its_entry_and_nothing_else(database):
    worker = database.start(*ONLY_US).wait_ready()
    wait_until(lambda: registered_workers("worker"), "the registration")
    worker.wait_looks(5)
    seen = registered_workers("worker")[0].seen_at

    with database.other_program() as other:
        wal = database.path.with_name(f"{database.path.name}-wal")
        size = wal.stat().st_size
        commits, version = 0, other.execute("PRAGMA data_version").fetchone()
        for _ in range(LOOKS // 5):
            worker.wait_looks(5)
            now = other.execute("PRAGMA data_version").fetchone()
            commits, version = commits + (now != version), now
        seen_then = registered_workers("worker")[0].seen_at

    assert commits == round((seen_then - seen) / 1000 / WRITE_INTERVAL)
    assert wal.stat().st_size - size <= commits * 8_500  # two pages with their frames' heads
    worker.terminate()
    assert worker.ended_well()
