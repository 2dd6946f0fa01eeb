"""Which process a worker is, so that a reused pid or another container is never mistaken for it."""

import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import psutil


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessIdentity:
    """A process, wherever it runs; `started_at` in seconds, see _started_at()."""

    boot_id: str
    pid_namespace: int
    pid: int
    started_at: float

    @property
    def is_here(self) -> bool:
        """Whether we could see this process if it lived: same boot, same pid namespace."""
        return (self.boot_id, self.pid_namespace) == (boot_id(), pid_namespace())

    @property
    def is_gone(self) -> bool:
        """Whether it surely lives no more. False where we cannot know."""
        if not self.is_here or self == this_process():
            return False
        try:
            process = psutil.Process(self.pid)
            return process.status() == psutil.STATUS_ZOMBIE or self._is_another(process)
        except psutil.NoSuchProcess:
            return True

    def _is_another(self, process: psutil.Process) -> bool:
        return abs(_started_at(process) - self.started_at) > 2  # psutil counts in whole seconds


def this_process() -> ProcessIdentity:
    """The identity of the calling process."""
    return _process(os.getpid())


@cache  # one entry, and one more in a forked process
def _process(pid: int) -> ProcessIdentity:
    return ProcessIdentity(
        boot_id=boot_id(),
        pid_namespace=pid_namespace(),
        pid=pid,
        started_at=_started_at(psutil.Process(pid)),
    )


def _started_at(process: psutil.Process) -> float:
    """Seconds from the boot to its start, or what its system remembers of its start.

    Linux counts from the boot, and psutil adds a boot time that moves whenever the wall clock is
    set: by that every worker would be taken for another process, and lose its leases.
    """
    booted = psutil.boot_time() if psutil.LINUX else 0.0  # first, or old releases remember another
    return process.create_time() - booted


@cache
def boot_id() -> str:
    """Changes with every start of the machine and is the same in its containers."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return f"booted-{psutil.boot_time():.0f}"


@cache
def pid_namespace() -> int:
    """In which numbering of processes a pid means something; 0 where there is only one."""
    try:
        return Path("/proc/self/ns/pid").stat().st_ino
    except OSError:
        return 0
