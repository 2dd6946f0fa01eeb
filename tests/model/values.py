"""The values of the reference model: options of a queue, and messages.

Times are epoch milliseconds, lengths milliseconds; 0 is "none".
"""

from dataclasses import dataclass, fields

from django_mqlite.types import Lease


class Terse:
    """A repr without defaults, so that a failing example is readable."""

    def __repr__(self) -> str:
        values = [(f.name, getattr(self, f.name), f.default) for f in fields(self)]  # type: ignore[arg-type]
        text = ", ".join(f"{name}={value!r}" for name, value, default in values if value != default)
        return f"{type(self).__name__}({text})"


@dataclass(kw_only=True, repr=False)
class Options(Terse):
    """The options of a queue."""

    ordering_mode: str = "standard"
    lock_duration: int = 30_000
    max_delivery_count: int = 10
    backoff_base: int = 0
    backoff_max: int = 3_600_000
    default_ttl: int = 0
    dead_letter_on_expire: bool = True
    dedup_window: int = 0
    retain_completed: int = 0
    dlq_max_age: int = 0
    dlq_max_count: int = 0
    dlq_max_bytes: int = 0
    max_in_flight: int = 0
    rate: tuple[int, int] | None = None  # deliveries, and milliseconds
    paused: bool = False


@dataclass(frozen=True, kw_only=True, repr=False)
class New(Terse):
    """A message before it is stored; None means not given."""

    body: bytes = b""
    group: str | None = None
    priority: int = 0
    delay: int | None = None
    ttl: int | None = None
    bound: int | None = None
    message_id: str | None = None
    subject: str | None = None
    unique: str | None = None


@dataclass(kw_only=True)
class Record:
    """A message."""

    id: int
    queue: str
    new: New
    priority: int
    visible_at: int
    state: str = "active"
    expires_at: int = 0
    locked_until: int = 0
    token: str | None = None
    deliveries: int = 0
    handled: bool = False  # delivered or redriven: no mere schedule any more
    activated: bool = False  # perhaps at its delivery limit
    finished_at: int = 0
    uncounted: int = 0
    progress: float | None = None
    reason: str | None = None
    description: str | None = None

    @property
    def lease(self) -> Lease:
        return Lease(queue=self.queue, id=self.id, lock_token=self.token or "")
