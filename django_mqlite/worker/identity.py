"""The identity of a process, which is unique across reused pids and containers."""

import os
import socket
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import psutil


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessIdentity:
    """A process on this or another machine. `started_at` is in seconds, see _started_at()."""

    host: str
    boot_id: str
    pid_namespace: int
    pid: int
    started_at: float

    @property
    def is_here(self) -> bool:
        """True if this process could see it: same boot and same pid namespace."""
        return (self.boot_id, self.pid_namespace) == (boot_id(), pid_namespace())

    def is_dead(self, *, seen_at: int) -> bool:
        """Return True if the process is certainly dead; `seen_at` is its last heartbeat in ms."""
        if not self.is_here:
            return self.is_from_previous_boot(seen_at=seen_at)
        if self == this_process():
            return False
        return not _exists(self.pid) or self._has_successor

    def is_from_previous_boot(self, *, seen_at: int) -> bool:
        """Return True if the process certainly ran on this machine before it was restarted.

        The host name alone does not prove it, because clones of a virtual machine share one. A
        process that has written a heartbeat since this machine started runs on another machine.
        """
        has_boot_ids = not any(
            boot.startswith(HOST_NAME_PREFIX) for boot in (self.boot_id, boot_id())
        )
        is_other_boot = (
            has_boot_ids and self.boot_id != boot_id() and self.host == socket.gethostname()
        )
        return is_other_boot and seen_at < _earliest_boot_ms()

    @property
    def _has_successor(self) -> bool:
        """True if another process has the pid now, or the process is a zombie."""
        try:
            process = psutil.Process(self.pid)
            is_another = abs(_started_at(process) - self.started_at) > 2
            return is_another or process.status() == psutil.STATUS_ZOMBIE
        except (psutil.Error, OSError):  # hidden from this user, or just ended
            return False


def _exists(pid: int) -> bool:
    """Return True if the pid is in use. /proc may hide the processes of other users."""
    if os.name == "nt":
        return psutil.pid_exists(pid)  # on Windows, os.kill() with signal 0 would end the process
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def this_process() -> ProcessIdentity:
    """Return the identity of the calling process."""
    return _process(os.getpid())


@cache  # by pid, so that a forked process does not reuse its parent's entry
def _process(pid: int) -> ProcessIdentity:
    return ProcessIdentity(
        host=socket.gethostname(),
        boot_id=boot_id(),
        pid_namespace=pid_namespace(),
        pid=pid,
        started_at=_started_at(psutil.Process(pid)),
    )


def _started_at(process: psutil.Process) -> float:
    """Return the start time of the process, on Linux in seconds since boot.

    psutil adds the boot time, which changes whenever the wall clock is set. Every worker would then
    be mistaken for another process and lose its leases.
    """
    if not psutil.LINUX:
        return process.create_time()
    stat = Path(psutil.PROCFS_PATH, str(process.pid), "stat").read_bytes()
    after_name = stat.rpartition(b")")[2].split()
    return int(after_name[19]) / os.sysconf("SC_CLK_TCK")


HOST_NAME_PREFIX = "boot-of-"


@cache
def boot_id() -> str:
    """Return an id that changes with every boot and is the same in all containers of the machine.

    If the system has none, it is derived from the host name.
    """
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return f"{HOST_NAME_PREFIX}{socket.gethostname()}"


_boot_times: list[float] = []


def _earliest_boot_ms() -> int:
    """Return the earliest time of this machine's start that this process has computed, in ms.

    The system computes it from the wall clock, so it moves whenever the clock is set.
    """
    _boot_times[:] = [min([psutil.boot_time(), *_boot_times])]
    return int(_boot_times[0] * 1_000)


@cache
def pid_namespace() -> int:
    """Return the id of the pid namespace of this process; 0 if the system has none."""
    try:
        return Path("/proc/self/ns/pid").stat().st_ino
    except OSError:
        return 0
