"""Value types that cross layers: states, leases, outcomes, configuration and statistics."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from hashlib import sha256
from typing import Any, Final, Literal, NamedTuple, Self, get_args

from .exceptions import storable
from .limits import QueueLimits, Rate

MAX_INTEGER: Final = 2**63 - 1


def clamped(id: int) -> int:
    """Return `id`, or the nearest number that SQLite can hold."""
    return min(max(id, -MAX_INTEGER - 1), MAX_INTEGER)


class State(StrEnum):
    """The state of a message; the values are those of the `state` column."""

    ACTIVE = "active"
    LOCKED = "locked"
    DEFERRED = "deferred"
    SCHEDULED = "scheduled"
    COMPLETED = "completed"
    DEAD_LETTERED = "dead_lettered"


UNFINISHED: Final = (State.ACTIVE, State.LOCKED, State.SCHEDULED, State.DEFERRED)
"""The states of messages that have not ended."""


class OrderingMode(StrEnum):
    """The ordering of a queue's messages (contract §6)."""

    STANDARD = "standard"
    GROUP_FIFO = "group_fifo"
    STRICT_FIFO = "strict_fifo"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """The right to settle one message until it expires."""

    queue: str
    id: int
    lock_token: str
    lost: bool = field(default=False, compare=False)
    """True once the worker knows that the lease is lost. Read `message.lease` again for updates."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewMessage:
    """A validated message that is not stored yet. Times and durations are in milliseconds.

    If `ttl_ms` or `max_delivery_count` is 0, only the queue's limit applies.
    """

    queue: str
    body: bytes
    content_type: str | None = None
    delay_ms: int = 0
    visible_at: int | None = None
    ttl_ms: int = 0
    priority: int = 0
    max_delivery_count: int = 0
    message_id: str | None = None
    correlation_id: str | None = None
    reply_to: str | None = None
    group_id: str | None = None
    subject: str | None = None
    properties: str | None = None
    unique_key: str | None = None

    def visible_from(self, now: int) -> int:
        """Return the delivery time of a message that is enqueued at `now`."""
        return now + self.delay_ms if self.visible_at is None else self.visible_at


class BulkCount(int):
    """The number of messages redriven or purged, with the ids of those that remain dead letters.

    `referenced`: a foreign key of the project refers to them. `duplicates`: an unfinished message
    of the queue has their unique key.
    """

    referenced: tuple[int, ...]
    duplicates: tuple[int, ...]

    def __new__(
        cls, count: int = 0, referenced: Iterable[int] = (), duplicates: Iterable[int] = ()
    ) -> Self:
        """Create a count with these ids."""
        instance = super().__new__(cls, count)
        instance.referenced = tuple(referenced)
        instance.duplicates = tuple(duplicates)
        return instance

    @property
    def kept(self) -> tuple[int, ...]:
        """The ids of all messages that remain dead letters."""
        return self.referenced + self.duplicates

    def plus(self, other: "BulkCount") -> "BulkCount":
        """Return the sum of the counts, with the ids of both."""
        return BulkCount(
            self + other,
            self.referenced + other.referenced,
            self.duplicates + other.duplicates,
        )


class ErrorCount(NamedTuple):
    """The number of dead letters whose last error was of this class.

    Without a recorded error, `error_class` is None and `reason` distinguishes them.
    """

    error_class: str | None
    reason: str | None
    dead_letters: int


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueConfig:
    """The configuration columns of a queue; durations are in milliseconds."""

    kind: str = "queue"
    ordering_mode: str = OrderingMode.STANDARD
    lock_duration_ms: int = 30_000
    max_delivery_count: int = 10
    backoff_base_ms: int = 1_000
    backoff_max_ms: int = 3_600_000
    default_ttl_ms: int = 0
    dead_letter_on_expire: bool = True
    dedup_window_ms: int = 0
    retain_completed_ms: int = 0
    dlq_max_age_ms: int = 0
    dlq_max_count: int = 0
    dlq_max_bytes: int = 0
    max_in_flight: int = 0
    rate_count: int = 0
    rate_period_ms: int = 0

    @property
    def rate(self) -> Rate | None:
        """The rate, or None for no limit."""
        if not self.rate_count:
            return None
        return Rate(count=self.rate_count, period_ms=self.rate_period_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """The delivery succeeded. `result` is the JSON text to keep, or None.

    `retain_ms`: how long to keep the completed message; None means the queue's value, 0 not at all.
    """

    result: str | None = None
    retain_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Abandonment:
    """The delivery failed; try again after `delay_ms`, None for the queue's backoff.

    `counts` False: the delivery is not counted; `delay_ms` is then at least 1.
    """

    delay_ms: int | None = None
    counts: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejection:
    """The message can never succeed. The texts are copied here, before a transaction begins."""

    reason: str
    description: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "reason", storable(self.reason))
        object.__setattr__(self, "description", storable(self.description))


@dataclass(frozen=True, slots=True, kw_only=True)
class Deferral:
    """The message is set aside until it is claimed by its id."""


Outcome = Completion | Abandonment | Rejection | Deferral
"""The outcome of a delivery, which determines the verb that settles it."""


Tallies = Mapping[str, Mapping[str, Sequence[Sequence[int]]]]
"""Per series and queue: rows of a period, counted from the epoch, a label and a count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerResult:
    """A return value with which a handler settles its own delivery; `error` is stored."""

    outcome: Outcome
    error: BaseException | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerRecord:
    """A worker's registration, last written at `seen_at` (epoch milliseconds).

    `process_started_at`: seconds, as the system counts them; with the pid, it identifies a process.
    `reaps`: it also runs the reaper. A worker without queues runs nothing else.
    """

    worker: str
    host: str
    boot_id: str
    pid_namespace: int
    pid: int
    process_started_at: float
    queues: tuple[str, ...]
    slots: int
    in_flight: int
    started_at: int
    seen_at: int = 0
    reaps: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """The reason why a message has not run, or its outcome.

    `code` is stable, for scripts; `text` is a sentence without its subject, in the active
    language; `facts` are the values that it states, as JSON types.
    """

    code: str
    text: str
    facts: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleRecord:
    """The stored progress of a recurring schedule; times are in epoch milliseconds, 0 for none.

    Every tick up to `position` has been decided. `definition` is the text of its ticks: another
    text means that another version of the schedule is in use. `last_id` is the last message,
    enqueued at `last_at` for the tick `last_tick`; `skipped_tick` is the last tick that was skipped
    because of it. `error` says why the next tick cannot be enqueued.
    """

    definition: str
    position: int
    paused: bool = False
    last_id: int = 0
    last_tick: int = 0
    last_at: int = 0
    skipped_tick: int = 0
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleStatus:
    """A recurring schedule at a glance. Times are aware datetimes; None means not known or never.

    `last_message` is the sequence number of the last message, and `last_outcome` explains what
    became of it.
    """

    name: str
    definition: str
    target: str
    paused: bool
    next_run: datetime | None
    last_run: datetime | None
    last_message: int | None
    last_outcome: Explanation | None
    explanation: Explanation


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueStats:
    """The number of a queue's messages by state, and views on some of them.

    `blocked` active messages wait behind the head of their group, and `oldest_blocked` is the
    sequence number of the first. `retrying` messages are scheduled after a failed delivery.
    `recent_dead_letters` died in the last hour. `due_since_ms` is the time at which the oldest
    message that nothing blocks became due. `limits` are those on the queue's deliveries, and how
    much of them is used.
    """

    queue: str
    paused: bool
    counts: Mapping[str, int]
    blocked: int
    oldest_blocked: int | None
    retrying: int
    recent_dead_letters: int
    due_since_ms: int | None
    limits: QueueLimits


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockingHead:
    """The head of a group, with the oldest message that waits behind it. Times are in ms."""

    blocked_id: int
    blocked_since_ms: int
    id: int
    state: str
    visible_at_ms: int
    is_retry: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PeriodTally:
    """The number of deliveries that ended in one period: completed, and failed."""

    began_ms: int
    completed: int
    failed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryTimes:
    """The median and the 95th percentile of durations, in milliseconds, to about 9 %."""

    median_ms: int
    p95_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueOverview:
    """A queue at a glance: its depth, its workers, and its last hour and day, oldest first.

    `slots` is the number of messages that its live workers can handle at the same time, and `busy`
    is how many of them they handle now, of any queue. `head` is what the oldest blocked message
    waits for. `wait` is the time from when a message was due to its claim, `run` the time from its
    claim to its end, both over the last hour; None without a delivery.
    """

    stats: QueueStats
    workers: int
    slots: int
    busy: int
    head: BlockingHead | None
    minutes: tuple[PeriodTally, ...]
    half_hours: tuple[PeriodTally, ...]
    wait: DeliveryTimes | None
    run: DeliveryTimes | None

    @property
    def is_busy(self) -> bool:
        """True if a due message waits because all slots are in use."""
        return self.stats.due_since_ms is not None and 0 < self.slots <= self.busy

    @property
    def completed(self) -> int:
        """The number of completed deliveries in the last hour."""
        return sum(minute.completed for minute in self.minutes)

    @property
    def failed(self) -> int:
        """The number of failed deliveries in the last hour, including dead letters."""
        return sum(minute.failed for minute in self.minutes)


Right = Literal["send", "listen", "manage"]
"""What an access key may do with the queues and topics that its patterns match."""

RIGHTS: Final[tuple[Right, ...]] = get_args(Right)


def patterns_of(rights: Any, right: Right) -> tuple[str, ...]:
    """Return the patterns of a stored right; none if another program has damaged them."""
    patterns = rights.get(right) if isinstance(rights, dict) else None
    if not isinstance(patterns, list):
        return ()
    return tuple(pattern for pattern in patterns if isinstance(pattern, str))


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A page of a list: ids in list order, and the position of the next page, None on the last.

    `searched` is the number of messages after which a search in contents stopped, or None if it
    has filled the page or reached the end of the list.
    """

    ids: tuple[int, ...]
    next: str | None
    searched: int | None = None


def fingerprint(lock_token: str) -> str:
    """Return a public fingerprint of a lock token: it identifies the lease but cannot settle it."""
    return sha256(lock_token.encode()).hexdigest()[:32]
