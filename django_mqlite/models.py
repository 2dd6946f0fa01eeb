"""The models of the eight tables. Rows change through verbs, not save()."""

from collections.abc import Callable
from datetime import timedelta
from fnmatch import fnmatchcase
from typing import Any, ClassVar, Literal

from django.core.validators import MinValueValidator
from django.db import models
from django.utils.translation import gettext_lazy as _

from . import message
from .arguments import checked_fraction, checked_text
from .exceptions import LeaseVerb, LockLost
from .fields import (
    ComputedTextField,
    DocumentField,
    EpochMillisecondsField,
    MillisecondsField,
)
from .limits import Rate
from .managers import (
    AccessKeyManager,
    DeadLetterManager,
    MessageManager,
    QueueManager,
    ScheduleManager,
    SubscriptionManager,
)
from .timing import Duration, epoch_ms, milliseconds, now_ms
from .types import (
    RIGHTS,
    Abandonment,
    Completion,
    Deferral,
    Explanation,
    Lease,
    OrderingMode,
    Outcome,
    Rejection,
    Right,
    State,
    fingerprint,
    patterns_of,
)
from .verbs.async_twins import async_twin, has_async_twin
from .verbs.orm_guards import GuardedModel

__all__ = [
    "AccessKey",
    "DeadLetter",
    "Dedup",
    "Message",
    "MetaEntry",
    "Queue",
    "ReceiveAttempt",
    "Schedule",
    "SettlementReceipt",
    "Subscription",
]


PROGRESS_INTERVAL_MS = 1_000
"""The minimum time between two writes of a handler's progress."""


# Queues come first: Django restores tables in this order, with serialized_rollback for example, and
# the others refer to them.
class Queue(GuardedModel):
    """A queue and its configuration."""

    class Kind(models.TextChoices):
        QUEUE = "queue", _("queue")
        SUBSCRIPTION = "subscription", _("subscription")

    name = models.TextField(_("name"), primary_key=True)
    kind = models.TextField(_("kind"), choices=Kind.choices, default=Kind.QUEUE)
    ordering_mode = models.TextField(
        _("ordering mode"),
        choices=[(mode.value, mode.value) for mode in OrderingMode],
        default=OrderingMode.STANDARD.value,
    )
    lock_duration_ms = MillisecondsField(_("lock duration"), minimum=1, default=30_000)
    max_delivery_count = models.BigIntegerField(
        _("maximum delivery count"), default=10, validators=[MinValueValidator(1)]
    )
    backoff_base_ms = MillisecondsField(_("backoff base"), default=1_000)
    backoff_max_ms = MillisecondsField(_("backoff maximum"), default=3_600_000)
    default_ttl_ms = MillisecondsField(
        _("default time to live"), default=0, help_text=_("0 means unlimited.")
    )
    dead_letter_on_expire = models.BooleanField(_("dead-letter on expiry"), default=True)
    dedup_window_ms = MillisecondsField(
        _("deduplication window"), default=0, help_text=_("0 disables deduplication.")
    )
    retain_completed_ms = MillisecondsField(
        _("keep completed messages for"),
        default=0,
        help_text=_("0 deletes completed messages immediately."),
    )
    dlq_max_age_ms = MillisecondsField(_("dead letters: maximum age"), default=0)
    dlq_max_count = models.BigIntegerField(_("dead letters: maximum count"), default=0)
    dlq_max_bytes = models.BigIntegerField(_("dead letters: maximum bytes"), default=0)
    max_in_flight = models.BigIntegerField(
        _("maximum in flight"),
        default=0,
        validators=[MinValueValidator(0)],
        help_text=_("0 means unlimited."),
    )
    rate_count = models.BigIntegerField(_("rate: deliveries"), default=0)
    rate_period_ms = MillisecondsField(_("rate: period"), default=0)
    rate_tokens = models.BigIntegerField(_("rate: tokens"), default=0)
    rate_updated_at = EpochMillisecondsField(_("rate: updated at"))
    paused = models.BooleanField(_("paused"), default=False)
    created_at = EpochMillisecondsField(_("created at"))
    updated_at = EpochMillisecondsField(_("updated at"))

    objects: ClassVar[QueueManager["Queue"]] = QueueManager()  # type: ignore[assignment]

    class Meta:
        db_table = "mqlite_queues"
        verbose_name = _("queue")
        verbose_name_plural = _("queues")
        permissions = [("pause_queue", "Can pause and resume queues")]

    def __str__(self) -> str:
        return self.name

    @property
    def lock_duration(self) -> timedelta:
        """The duration of a lease, unless the claim passes another one."""
        return timedelta(milliseconds=self.lock_duration_ms)

    @property
    def rate(self) -> Rate | None:
        """The rate at which messages are delivered at most, such as 100/min; None for no limit."""
        if not self.rate_count:
            return None
        return Rate(count=self.rate_count, period_ms=self.rate_period_ms)

    def pause(self) -> bool:
        """Stop claims from this queue; enqueueing continues. Return False if already paused.

        Raises QueueNotFound if the queue has been deleted.
        """
        return self._set_paused(True)

    def resume(self) -> bool:
        """Allow claims again. Return False if the queue is not paused. Raises QueueNotFound."""
        return self._set_paused(False)

    def _set_paused(self, paused: bool) -> bool:
        return Queue.objects.db_manager(self._state.db).set_paused(self, paused)


class Message(GuardedModel):
    """A message in any state, and its lease while it is locked."""

    id = models.BigAutoField(primary_key=True)
    queue = models.TextField(_("queue"))
    state = models.TextField(
        _("state"),
        choices=[(state.value, state.value) for state in State],
        default=State.ACTIVE.value,
    )
    priority = models.BigIntegerField(_("priority"), default=0)
    line = models.TextField(_("line"), null=True)
    blocked = models.BooleanField(_("blocked"), default=False)
    visible_at = EpochMillisecondsField(_("visible at"))
    enqueued_at = EpochMillisecondsField(_("enqueued at"))
    expires_at = EpochMillisecondsField(_("expires at"))
    locked_at = EpochMillisecondsField(_("locked at"))
    locked_until = EpochMillisecondsField(_("locked until"))
    lock_token = models.TextField(_("lock token"), null=True)
    locked_by = models.TextField(_("locked by"), null=True)
    delivery_count = models.BigIntegerField(_("delivery count"), default=0)
    max_delivery_count = models.BigIntegerField(_("maximum delivery count"), default=0)
    message_id = models.TextField(_("message id"), null=True)
    unique_key = models.TextField(_("unique key"), null=True)
    correlation_id = models.TextField(_("correlation id"), null=True)
    reply_to = models.TextField(_("reply to"), null=True)
    group_id = models.TextField(_("group id"), null=True)
    subject = models.TextField(_("subject"), null=True)
    content_type = models.TextField(_("content type"), null=True)
    properties = DocumentField(_("properties"), null=True)
    body = models.BinaryField(_("body"))
    errors = DocumentField(_("errors"), null=True)
    result = DocumentField(_("result"), null=True)
    finished_at = EpochMillisecondsField(_("finished at"))
    dead_letter_reason = models.TextField(_("dead-letter reason"), null=True)
    dead_letter_description = models.TextField(_("dead-letter description"), null=True)
    interruptions = models.BigIntegerField(_("interruptions"), default=0)
    uncounted_retries = models.BigIntegerField(_("uncounted retries"), default=0)
    progress = DocumentField(_("progress"), null=True)
    kept_until = EpochMillisecondsField(_("kept until"))
    error_class = ComputedTextField(_("error class"), null=True)

    objects: ClassVar[MessageManager["Message"]] = MessageManager()  # type: ignore[assignment]

    class Meta:
        db_table = "mqlite_messages"
        verbose_name = _("message")
        verbose_name_plural = _("messages")
        permissions = [
            ("redrive_message", "Can redrive dead letters"),
            ("purge_message", "Can purge dead letters"),
            ("release_message", "Can release leases"),
            ("discard_message", "Can discard messages"),
            ("view_body", "Can view bodies, results and the texts of errors"),
            ("redrive_edited_message", "Can redrive dead letters with an edited body"),
            ("enqueue_message", "Can enqueue messages in the admin"),
        ]

    def __str__(self) -> str:
        return f"#{self.pk} of {self.queue}"

    claimed_token: str | None = None
    """The lock token that this instance was claimed with; None if it was only read."""

    _progress_at = 0
    """The time of the last write by set_progress(), in epoch milliseconds."""

    lease_lost = False
    """Set by the worker's lease renewer; read it as `message.lease.lost`."""

    in_flight_limited = False
    """True if the message counts towards its queue's `max_in_flight`: a settle wakes workers."""

    read_error: BaseException | None = None
    """The error that the project's `from_db()` or a receiver raised when a worker read the row."""

    on_completed: Callable[[], object] | None = None
    """A callback to run after the completion of this delivery is committed."""

    duplicate = False
    """True if enqueue() returned an existing message instead of storing a new one.

    It was found in the deduplication window, or it is unfinished and has the same unique key.
    """

    @property
    def idempotency_key(self) -> str:
        """A unique key of the message, to pass to services that the handler calls.

        It is the same for every delivery and after a redrive in place. The id alone is not enough:
        after a backup is restored, another message can get the same id.
        """
        return f"{self.pk}-{epoch_ms(self.enqueued_at)}"

    @property
    def data(self) -> Any:
        """The body, decoded by its content type: parsed JSON, text, or bytes."""
        return message.decode(bytes(self.body), self.content_type)

    @property
    def lease(self) -> Lease | None:
        """The lease that this instance was claimed under; None if it was only read.

        A long handler should check `message.lease.lost` from time to time: once it is True, the
        handler can no longer settle the message.
        """
        if self.claimed_token is None:
            return None
        return Lease(
            queue=self.queue,
            id=self.pk,
            lock_token=self.claimed_token,
            lost=self.lease_lost,
        )

    @property
    def lease_fingerprint(self) -> str | None:
        """The fingerprint of the lease in the row, for release(); None if there is no lease.

        It may be shown to people: unlike the lock token, it cannot settle the message.
        """
        return None if self.lock_token is None else fingerprint(self.lock_token)

    @has_async_twin
    def complete(self) -> None:
        """Complete the message: delete it, or retain it if its queue has `retain_completed`.

        Inside `transaction.atomic()` the completion commits or rolls back with the caller's writes.
        Repeating the call within 30 minutes succeeds and changes nothing. Raises LockLost if the
        lease has ended or was settled in another way.
        """
        self._settle("complete", Completion())

    acomplete = async_twin(complete)

    @has_async_twin
    def abandon(
        self, *, delay: Duration | None = None, error: BaseException | str | None = None
    ) -> None:
        """Return the message to its queue; at its delivery limit, make it a dead letter.

        It is delivered again after `delay` (timedelta or seconds; 0 means immediately), by default
        after the queue's backoff. `error` is appended to `errors`. Repeating the call within 30
        minutes succeeds and changes nothing. Raises LockLost if the lease has ended, or if the
        call is repeated with another delay.
        """
        delay_ms = None if delay is None else milliseconds(delay, "delay")
        self._settle("abandon", Abandonment(delay_ms=delay_ms), error)

    aabandon = async_twin(abandon)

    @has_async_twin
    def reject(
        self, reason: str, description: str = "", *, error: BaseException | str | None = None
    ) -> None:
        """Make the message a dead letter, because it can never succeed.

        `reason` is a short name to search for, and `description` is for people. Repeating the call
        within 30 minutes succeeds and changes nothing. Raises LockLost if the lease has ended, or
        if the call is repeated with other arguments, and ValueError for an empty reason.
        """
        if not reason:
            raise ValueError("reason must not be empty: it is the name to search for")
        self._settle("reject", Rejection(reason=reason, description=description), error)

    areject = async_twin(reject)

    @has_async_twin
    def defer(self) -> None:
        """Set the message aside until claim_deferred() claims it by its id.

        It keeps its place in its group, so the other messages of the group wait. Repeating the call
        within 30 minutes succeeds and changes nothing. Raises LockLost if the lease has ended.
        """
        self._settle("defer", Deferral())

    adefer = async_twin(defer)

    @has_async_twin
    def explain(self) -> Explanation:
        """Explain why the message has not run, what holds it, or how it ended."""
        return self._manager().explain(self.pk)

    aexplain = async_twin(explain)

    @has_async_twin
    def cancel(self) -> bool:
        """Delete the message if it is scheduled and was never delivered; otherwise return False.

        Repeating the call returns False. A redriven dead letter that waits because of a rate cannot
        be cancelled either.
        """
        return self._manager().cancel(self.pk)

    acancel = async_twin(cancel)

    @has_async_twin
    def renew(self, lock_duration: Duration | None = None) -> None:
        """Renew the lease for `lock_duration` (timedelta or seconds), by default the queue's.

        The duration starts now; a lease is never shortened. Raises LockLost if the lease has ended:
        an expired lease cannot be renewed.
        """
        if not self._manager().renew_many([self], lock_duration)[0]:
            raise LockLost(self.queue, self.pk, "renew")

    arenew = async_twin(renew)

    @has_async_twin
    def set_progress(self, fraction: float, text: str = "") -> None:
        """Record how much of the work is done, from 0 to 1, with a short text for people.

        The admin, `mqlite show` and a task's result show it. At most one call per second is
        written, but a `fraction` of 1 always is. Raises LockLost if the lease has ended, and
        TypeError or ValueError for invalid arguments.
        """
        fraction = checked_fraction(fraction, "fraction")
        text = checked_text(text, "text", min_length=0)
        now = now_ms()
        if fraction < 1 and abs(now - self._progress_at) < PROGRESS_INTERVAL_MS:
            return
        if not self._manager().set_progress(self, fraction, text):
            raise LockLost(self.queue, self.pk, "set the progress of")
        self._progress_at = now

    aset_progress = async_twin(set_progress)

    def _settle(
        self, verb: LeaseVerb, outcome: Outcome, error: BaseException | str | None = None
    ) -> None:
        if not self._manager().settle(self, outcome, error=error):
            raise LockLost(self.queue, self.pk, verb)

    def _manager(self) -> "MessageManager[Message]":
        return Message.objects.db_manager(self._state.db)


class DeadLetter(Message):
    """A message that failed for good: a proxy of Message with its own admin."""

    objects: ClassVar[DeadLetterManager["DeadLetter"]] = DeadLetterManager()  # type: ignore[assignment]

    class Meta:
        proxy = True
        verbose_name = _("dead letter")
        verbose_name_plural = _("dead letters")


class Subscription(GuardedModel):
    """A subscription: its queue gets a copy of each message of `topic` that `filter` matches."""

    subscription = models.TextField(_("subscription"), primary_key=True)
    topic = models.TextField(_("topic"))
    filter = models.TextField(_("filter"), default="", blank=True)
    expression = models.TextField(default="", blank=True, editable=False)
    created_at = EpochMillisecondsField(_("created at"))

    objects: ClassVar[SubscriptionManager["Subscription"]] = SubscriptionManager()  # type: ignore[assignment]

    class Meta:
        db_table = "mqlite_subscriptions"
        verbose_name = _("subscription")
        verbose_name_plural = _("subscriptions")

    def __str__(self) -> str:
        return f"{self.subscription} of {self.topic}"


class Dedup(models.Model):
    """A deduplication key of its queue's window."""

    pk = models.CompositePrimaryKey("queue", "key")
    queue = models.TextField()
    key = models.TextField()
    data_sha256 = models.TextField()
    message = models.BigIntegerField()
    expires_at = EpochMillisecondsField()

    class Meta:
        db_table = "mqlite_dedup"

    def __str__(self) -> str:
        return self.key


class SettlementReceipt(models.Model):
    """The record of a settled lease, which makes repeating the settle safe."""

    pk = models.CompositePrimaryKey("message", "lock_token")
    message = models.BigIntegerField()
    lock_token = models.TextField()
    queue = models.TextField()
    verb = models.TextField()
    arguments = models.TextField()
    expires_at = EpochMillisecondsField()

    class Meta:
        db_table = "mqlite_settlement_receipts"

    def __str__(self) -> str:
        return f"{self.verb} #{self.message}"


class ReceiveAttempt(models.Model):
    """The leases, or the deleted messages, that a claim with an attempt id received."""

    pk = models.CompositePrimaryKey("queue", "attempt_id")
    queue = models.TextField()
    attempt_id = models.TextField()
    leases = models.TextField()
    deleted = models.TextField(null=True)
    expires_at = EpochMillisecondsField()

    class Meta:
        db_table = "mqlite_receive_attempts"

    def __str__(self) -> str:
        return self.attempt_id


class MetaEntry(models.Model):
    """Facts about the schema, the live workers and the reaper, by key."""

    key = models.TextField(primary_key=True)
    value = models.TextField()
    updated_at = EpochMillisecondsField()

    class Meta:
        db_table = "mqlite_meta"

    def __str__(self) -> str:
        return self.key


class Schedule(MetaEntry):
    """The record of a recurring schedule: a proxy of MetaEntry with its own admin."""

    objects: ClassVar[ScheduleManager["Schedule"]] = ScheduleManager()  # type: ignore[assignment]

    class Meta:
        proxy = True
        verbose_name = _("recurring schedule")
        verbose_name_plural = _("recurring schedules")
        permissions = [
            ("pause_schedule", "Can pause and resume recurring schedules"),
            ("run_schedule", "Can run recurring schedules now"),
        ]

    def __str__(self) -> str:
        return self.key.removeprefix("schedule:")


class AccessKey(GuardedModel):
    """A credential of the HTTP broker and what it may do. The secret itself is not stored."""

    name = models.TextField(_("name"), primary_key=True)
    digest = models.TextField(unique=True)
    rights = DocumentField(_("rights"), default=dict)
    created_at = EpochMillisecondsField(_("created at"))
    expires_at = EpochMillisecondsField(_("expires at"))
    last_used_at = EpochMillisecondsField(_("last used at"))
    revoked_at = EpochMillisecondsField(_("revoked at"))

    objects: ClassVar[AccessKeyManager["AccessKey"]] = AccessKeyManager()  # type: ignore[assignment]

    class Meta:
        db_table = "mqlite_access_keys"
        verbose_name = _("access key")
        verbose_name_plural = _("access keys")
        permissions = [("revoke_accesskey", "Can revoke access keys")]

    def __str__(self) -> str:
        return self.name

    @property
    def status(self) -> Literal["valid", "expired", "revoked"]:
        """Only a valid key is accepted. A revocation is final, and so is an expiry."""
        if self.revoked_at is not None:
            return "revoked"
        if self.expires_at is not None and epoch_ms(self.expires_at) <= now_ms():
            return "expired"
        return "valid"

    def allows(self, right: Right, name: str | None = None) -> bool:
        """Return whether the key has this right on the queue or topic `name`.

        `right` is "send", "listen" or "manage". Without a name, return whether the key has the
        right on every queue, as operations on the whole broker require. Raises ValueError for
        another right.
        """
        if right not in RIGHTS:
            raise ValueError(f"right must be one of {', '.join(RIGHTS)}, not {right!r}")
        patterns = patterns_of(self.rights, right)
        if name is None:
            return "*" in patterns
        return any(fnmatchcase(name, pattern) for pattern in patterns)

    def revoke(self) -> bool:
        """End the key for good; return False if it was already revoked.

        It takes effect within 5 seconds, in every process. Raises AccessKeyNotFound if the key has
        been deleted.
        """
        return AccessKey.objects.db_manager(self._state.db).revoke(self.name)
