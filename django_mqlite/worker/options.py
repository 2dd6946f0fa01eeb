"""The options of a worker."""

import os
import secrets
import socket
from dataclasses import dataclass, field

MAX_THREADS = 1_000
"""Each thread has its own connection, with three open files; coroutines share the slots."""
MAX_PROCESSES = 256


def worker_name(*, pid: int | None = None, unique: str | None = None) -> str:
    """Return the name of a worker: host, pid, and a random part in case the pid is reused."""
    return f"{socket.gethostname()}:{pid or os.getpid()}:{unique or unique_part()}"


def unique_part() -> str:
    """Return the random last part of a worker name."""
    return secrets.token_hex(2)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOptions:
    """The options of `runworker`; times are in seconds.

    Queues are served strictly in order or, if `round_robin` is true, in rotation. If
    `supervised` is true, a supervisor enforces timeouts by killing the process.
    """

    using: str
    queues: tuple[str, ...]
    round_robin: bool = False
    threads: int = 4
    burst: bool = False
    max_messages: int | None = None
    max_memory_mb: int | None = None
    shutdown_timeout: float = 30.0
    reaper: bool = True
    supervised: bool = False
    name: str = field(default_factory=worker_name)
