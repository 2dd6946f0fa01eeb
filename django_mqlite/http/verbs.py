"""The RPCs: each is a function from a request to a response that calls one of our verbs."""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

from django.core.exceptions import ImproperlyConfigured
from django.db import connections

from .. import __version__, timing
from ..exceptions import DuplicateConflict, LeaseVerb, LockLost, QueueNotFound, TopicNotFound
from ..filters import FilterVariables, check_filter, evaluate, filter_variables
from ..message import Draft, MessageOptions, new_message
from ..models import DeadLetter, Message, MetaEntry, Queue, Subscription
from ..timing import MAX_DURATION_MS, epoch_ms
from ..types import (
    MAX_INTEGER,
    Abandonment,
    Completion,
    Deferral,
    Lease,
    OrderingMode,
    Outcome,
    Rejection,
    Right,
    State,
)
from ..verbs.database_file import storage
from . import wire
from .errors import Refusal, invalid_argument
from .filter_language import translate
from .keys import Key

MAX_MESSAGES = 256
MAX_PEEKED = 1_000
DEFAULT_PEEKED = 32
MAX_RENEWED = 512
MAX_WAIT_MS = 20_000
MAX_ANSWER_BYTES = 32 * 1024 * 1024
"""A response has no more messages after this size of bodies."""

RECEIVE_AND_DELETE = 1
"""The receive mode without a lease; any other value means a lease."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What an RPC needs besides its request."""

    using: str
    key: Key
    has_auth: bool
    started_at: float

    @property
    def messages(self) -> Any:
        return Message.objects.db_manager(self.using)

    @property
    def queues(self) -> Any:
        return Queue.objects.db_manager(self.using)

    @property
    def dead_letters(self) -> Any:
        return DeadLetter.objects.db_manager(self.using)

    @property
    def subscriptions(self) -> Any:
        return Subscription.objects.db_manager(self.using)


def duration(milliseconds: int) -> timedelta:
    """Return the duration. One that is too long for a timedelta is too long for the verbs, too."""
    return timedelta(milliseconds=min(milliseconds, MAX_DURATION_MS + 1))


def named(name: str, field: str = "queue") -> str:
    """Return the name; raise an error if it is empty."""
    if not name:
        raise invalid_argument(f"{field} is empty: pass a name.")
    return name


# Sending


def send(request: wire.SendRequest, context: Context) -> wire.SendResponse:
    """Store the messages in a queue, or copy them into the subscriptions of a topic."""
    if request.scheduled_enqueue_time_ms < 0:
        raise invalid_argument("scheduled_enqueue_time_ms must be a time in the future.")
    if not request.messages:
        return wire.SendResponse(seq_numbers=None)
    common = _common_options(request)
    drafts = [Draft(message.body, **message_texts(message)) for message in request.messages]
    name = named(request.queue)
    try:
        stored = _enqueue(context, name, drafts, common)
    except QueueNotFound as error:
        try:
            copies = context.messages.publish_many(name, drafts, **common)
        except TopicNotFound:
            raise error from None
        stored = [last_copy(batch) for batch in copies]
    if len(stored) == 1 and isinstance(stored[0], DuplicateConflict):
        raise stored[0]
    return wire.SendResponse(seq_numbers=[getattr(message, "pk", 0) for message in stored])


def _enqueue(
    context: Context, queue: str, drafts: Sequence[Draft], common: MessageOptions
) -> list[Any]:
    if len(drafts) == 1:
        (draft,) = drafts
        return [context.messages.enqueue(queue, draft.data, **{**common, **draft.options})]
    return list(context.messages.enqueue_many(queue, drafts, **common))


def last_copy(copies: Sequence[Any]) -> Any:
    """Return the last copy that was stored; without one, a conflict or None."""
    stored = [copy for copy in copies if not isinstance(copy, DuplicateConflict)]
    return (stored or copies or [None])[-1]


def _common_options(request: wire.SendRequest) -> MessageOptions:
    options: MessageOptions = {}
    if request.scheduled_enqueue_time_ms:
        options["visible_at"] = future(request.scheduled_enqueue_time_ms)
    if request.ttl_ms > 0:
        options["ttl"] = duration(request.ttl_ms)
    return options


def future(epoch_milliseconds: int) -> Any:
    """Return the moment; raise an error unless it is in the future."""
    if epoch_milliseconds <= timing.now_ms():
        raise invalid_argument("scheduled_enqueue_time_ms must be a time in the future.")
    return timing.moment(epoch_milliseconds)


def message_texts(message: Any) -> MessageOptions:
    """Return the options that a message of the wire has: its texts and properties."""
    return {
        "message_id": message.message_id or None,
        "correlation_id": message.correlation_id or None,
        "reply_to": message.reply_to or None,
        "group_id": message.group_id or None,
        "content_type": message.content_type or None,
        "subject": message.subject or None,
        "properties": message.properties or None,
    }


# Receiving


def receive(request: wire.ReceiveRequest, context: Context) -> wire.MessagesResponse:
    """Claim messages without waiting."""
    queue = named(request.queue)
    limit = min(request.max_messages, MAX_MESSAGES) if request.max_messages > 0 else 1
    attempt_id = request.receive_attempt_id or None
    claim: dict[str, Any] = {
        "limit": limit,
        "attempt_id": attempt_id,
        "max_bytes": MAX_ANSWER_BYTES,
    }
    if request.receive_mode != RECEIVE_AND_DELETE:
        messages = context.messages.claim(queue, worker=f"http:{context.key.name}", **claim)
        return wire.MessagesResponse(messages=[_received(message) for message in messages])
    messages = context.messages.claim_and_delete(queue, **claim)
    return wire.MessagesResponse(messages=_deleted(messages, queue, context))


def wait_seconds(request: wire.ReceiveRequest) -> float:
    """Return how long the request waits for messages."""
    return min(max(request.wait_time_ms, 0), MAX_WAIT_MS) / 1000


def receive_deferred(
    request: wire.ReceiveDeferredRequest, context: Context
) -> wire.MessagesResponse:
    """Claim deferred messages, in the order in which the request names them."""
    messages = context.messages.claim_deferred(
        named(request.queue), request.seq_numbers, worker=f"http:{context.key.name}"
    )
    by_id = {message.pk: message for message in messages}
    numbers = dict.fromkeys(request.seq_numbers)
    return wire.MessagesResponse(
        messages=[_received(by_id[number]) for number in numbers if number in by_id]
    )


def _received(message: Any, *, kind: type[wire.Message] = wire.Message, **facts: Any) -> Any:
    return kind(
        seq_number=message.pk,
        body=bytes(message.body),
        message_id=message.message_id or "",
        correlation_id=message.correlation_id or "",
        reply_to=message.reply_to or "",
        group_id=message.group_id or "",
        content_type=message.content_type or "",
        subject=message.subject or "",
        properties=_properties(message.properties),
        enqueued_at_ms=milliseconds_of(message.enqueued_at),
        delivery_count=message.delivery_count,
        **{
            "locked_until_ms": milliseconds_of(message.locked_until),
            "lock_token": message.claimed_token or "",
            **facts,
        },
    )


def _deleted(messages: Sequence[Any], queue: str, context: Context) -> list[wire.Message]:
    """Return deleted messages; clients expect the deadline that a lease would have had."""
    if not messages or messages[0].claimed_token:
        return [_received(message) for message in messages]
    until = timing.now_ms() + context.queues.get(name=queue).lock_duration_ms
    return [_received(message, locked_until_ms=until) for message in messages]


def milliseconds_of(at: Any) -> int:
    """Return the moment in epoch milliseconds, 0 for None."""
    return 0 if at is None else epoch_ms(at)


def _properties(properties: Any) -> dict[str, str]:
    """Return the properties as text, even if another program wrote other values."""
    if not isinstance(properties, dict):
        return {}
    return {
        key: value if isinstance(value, str) else str(value) for key, value in properties.items()
    }


# Settling


def _settle(
    request: wire.SettleRequest, context: Context, verb: LeaseVerb, outcome: Outcome
) -> wire.OkResponse:
    lease = Lease(queue=request.queue, id=request.seq_number, lock_token=request.lock_token)
    if not context.messages.settle_leases([lease], outcome)[0]:
        raise LockLost(request.queue, request.seq_number, verb)
    return wire.OkResponse(ok=True)


def complete(request: wire.SettleRequest, context: Context) -> wire.OkResponse:
    """Complete a message."""
    return _settle(request, context, "complete", Completion())


def abandon(request: wire.SettleRequest, context: Context) -> wire.OkResponse:
    """Return a message to its queue, at once or after a delay."""
    delay = max(request.delay_ms, 0)
    if delay > MAX_DURATION_MS:
        raise invalid_argument(f"delay_ms must be at most {MAX_DURATION_MS}, not {delay}.")
    return _settle(request, context, "abandon", Abandonment(delay_ms=delay))


def reject(request: wire.SettleRequest, context: Context) -> wire.OkResponse:
    """Dead-letter a message."""
    rejection = Rejection(
        reason=request.dead_letter_reason or "AppRequested",
        description=request.dead_letter_description,
    )
    return _settle(request, context, "reject", rejection)


def defer(request: wire.SettleRequest, context: Context) -> wire.OkResponse:
    """Set a message aside."""
    return _settle(request, context, "defer", Deferral())


def renew(request: wire.SettleRequest, context: Context) -> wire.OkResponse:
    """Renew a lease for the lock duration of its queue."""
    lease = Lease(queue=request.queue, id=request.seq_number, lock_token=request.lock_token)
    if not context.messages.renew_leases([lease]):
        context.queues.named(named(request.queue))
        raise LockLost(request.queue, request.seq_number, "renew")
    return wire.OkResponse(ok=True)


def complete_batch(request: wire.LeaseBatchRequest, context: Context) -> wire.LeaseBatchResponse:
    """Complete many messages in one transaction."""
    held = context.messages.settle_leases(_leases(request), Completion())
    return wire.LeaseBatchResponse(
        results=[
            wire.LeaseResult(seq_number=item.seq_number, ok=ok)
            for item, ok in zip(request.messages, held, strict=True)
        ]
    )


def renew_batch(request: wire.LeaseBatchRequest, context: Context) -> wire.LeaseBatchResponse:
    """Renew many leases in one statement."""
    if len(request.messages) > MAX_RENEWED:
        raise invalid_argument(
            f"RenewBatch renews at most {MAX_RENEWED} leases, not {len(request.messages)}."
        )
    leases = _leases(request)
    until = context.messages.renew_leases(leases)
    return wire.LeaseBatchResponse(
        results=[
            wire.LeaseResult(
                seq_number=lease.id, ok=lease in until, locked_until_ms=until.get(lease, 0)
            )
            for lease in leases
        ]
    )


def _leases(request: wire.LeaseBatchRequest) -> list[Lease]:
    return [
        Lease(queue=request.queue, id=item.seq_number, lock_token=item.lock_token)
        for item in request.messages
    ]


def cancel(request: wire.CancelRequest, context: Context) -> wire.OkResponse:
    """Delete a scheduled message that was never delivered."""
    queue = named(request.queue)
    if not context.messages.cancel(request.seq_number, queue=queue):
        raise Refusal(
            404,
            "not_found",
            f"Queue {queue!r} has no scheduled message #{request.seq_number} that was never "
            "delivered.",
        )
    return wire.OkResponse(ok=True)


# Looking


def peek(request: wire.PeekRequest, context: Context) -> wire.MessagesResponse:
    """Return messages by number, without a lease; none for an unknown queue or state."""
    if request.state and request.state not in set(State):
        return wire.MessagesResponse(messages=[])
    try:
        messages = context.messages.browse(
            named(request.queue),
            from_id=request.from_seq,
            state=request.state or None,
            limit=min(request.max, MAX_PEEKED) if request.max > 0 else DEFAULT_PEEKED,
            max_bytes=MAX_ANSWER_BYTES,
        )
    except QueueNotFound:
        messages = []
    return wire.MessagesResponse(messages=[peeked(message) for message in messages])


def peeked(message: Any, *, kind: type[wire.Message] = wire.Message, **facts: Any) -> Any:
    """Return a message as it is without its lock token, as an object of this kind."""
    return _received(
        message,
        kind=kind,
        lock_token="",
        state=message.state,
        visible_at_ms=milliseconds_of(message.visible_at),
        expires_at_ms=milliseconds_of(message.expires_at),
        dead_letter_reason=message.dead_letter_reason or "",
        dead_letter_description=message.dead_letter_description or "",
        **facts,
    )


def stats(request: wire.QueueRequest, context: Context) -> wire.StatsResponse:
    """Count the messages of a queue."""
    queue = named(request.queue)
    counts = context.queues.stats_of(queue).counts
    oldest = context.queues.oldest_enqueued_at(queue)
    return wire.StatsResponse(
        queue=queue,
        active=counts["active"],
        locked=counts["locked"],
        deferred=counts["deferred"],
        scheduled=counts["scheduled"],
        dead_lettered=counts["dead_lettered"],
        total=sum(counts.values()),
        oldest_message_age_ms=0 if oldest is None else max(0, timing.now_ms() - oldest),
    )


# Administration


def create_queue(request: wire.CreateQueueRequest, context: Context) -> wire.EmptyResponse:
    """Create a queue, or overwrite the options that the wire has."""
    config = request.config
    kind, mode = config.kind or "queue", config.ordering_mode or OrderingMode.STANDARD
    options: dict[str, Any] = {
        "ordering_mode": mode,
        "lock_duration": duration(config.lock_duration_ms) if config.lock_duration_ms > 0 else 30,
        "max_delivery_count": config.max_delivery_count if config.max_delivery_count > 0 else 10,
        "default_ttl": duration(max(config.default_ttl_ms, 0)),
        "dead_letter_on_expire": config.dead_letter_on_expire is not False,
        "dedup_window": duration(max(config.dedup_window_ms, 0)),
    }
    bounds = {
        "dlq_max_age": config.dlq_max_age_ms,
        "dlq_max_count": config.dlq_max_count,
        "dlq_max_bytes": config.dlq_max_bytes,
    }
    for name, bound in bounds.items():
        options[name] = (bound if bound > 0 else None) if bound else "inherit"
    if config.dlq_max_age_ms > 0:
        options["dlq_max_age"] = duration(config.dlq_max_age_ms)
    try:
        context.queues.create_or_configure(named(request.name, "name"), kind=kind, **options)
    except ImproperlyConfigured as error:
        raise invalid_argument(str(error)) from error
    return wire.EmptyResponse()


def subscribe(request: wire.SubscribeRequest, context: Context) -> wire.EmptyResponse:
    """Subscribe a queue to a topic, or replace the filter of its subscription."""
    expression = request.filter.expr if request.filter else ""
    context.subscriptions.subscribe(
        named(request.topic, "topic"),
        named(request.name, "name"),
        filter=translate(expression),
        expression=expression,
    )
    return wire.EmptyResponse()


def list_queues(request: None, context: Context) -> wire.ListQueuesResponse:
    """List the queues that the key may manage, sorted by name."""
    return wire.ListQueuesResponse(
        queues=[
            wire.QueueInfo(
                name=queue.name,
                kind=queue.kind,
                lock_duration_ms=queue.lock_duration_ms,
                max_delivery_count=queue.max_delivery_count,
                default_ttl_ms=queue.default_ttl_ms,
                dedup_window_ms=queue.dedup_window_ms,
            )
            for queue in context.queues.using(context.using).order_by("name")
            if context.key.allows("manage", queue.name)
        ]
    )


def list_subscriptions(request: None, context: Context) -> wire.ListSubscriptionsResponse:
    """List the subscriptions that the key may manage, sorted by topic and name."""
    rows = context.subscriptions.using(context.using).order_by("topic", "subscription")
    return wire.ListSubscriptionsResponse(
        subscriptions=[
            wire.SubscriptionInfo(
                topic=row.topic, name=row.subscription, expr=row.expression or row.filter
            )
            for row in rows
            if context.key.allows("manage", row.subscription)
        ]
    )


def test_filter(request: wire.TestFilterRequest, context: Context) -> wire.TestFilterResponse:
    """Check a filter, and evaluate it for a sample message."""
    try:
        filter = translate(request.expr)
        check_filter(filter, translated=True)
    except ValueError as error:
        return wire.TestFilterResponse(valid=False, error=str(error), ran=False, matched=False)
    if request.message is None:
        return wire.TestFilterResponse(valid=True, ran=False, matched=False)
    try:
        matched = evaluate(filter, _sample_variables(request.message))
    except ImproperlyConfigured:
        raise
    except Exception as error:  # noqa: BLE001 - whatever an expression raises is the answer
        return wire.TestFilterResponse(valid=True, error=str(error), ran=True, matched=False)
    return wire.TestFilterResponse(valid=True, ran=True, matched=matched)


def _sample_variables(message: wire.Message) -> FilterVariables:
    enqueued_at = message.enqueued_at_ms or timing.now_ms()
    new = new_message("sample", message.body, max_body_bytes=MAX_INTEGER, **message_texts(message))
    variables = filter_variables(new, now=enqueued_at)
    variables["visible_at"] = timing.moment(message.visible_at_ms or enqueued_at)
    return variables


def redrive(request: wire.RedriveRequest, context: Context) -> wire.RedriveResponse:
    """Redrive dead letters in place, or into another queue."""
    _check_not_negative(request, "max", "older_than_ms", "rate_per_sec")
    moved = context.dead_letters.redrive_queue(
        named(request.queue),
        into=request.target or None,
        limit=request.max or None,
        older_than=duration(request.older_than_ms) if request.older_than_ms else None,
        rate=min(request.rate_per_sec, 1_000_000) or None,
    )
    return wire.RedriveResponse(moved=int(moved))


def purge(request: wire.PurgeRequest, context: Context) -> wire.PurgeResponse:
    """Delete dead letters."""
    _check_not_negative(request, "max", "older_than_ms")
    purged = context.dead_letters.purge_queue(
        named(request.queue),
        limit=request.max or None,
        older_than=duration(request.older_than_ms) if request.older_than_ms else None,
        everything=not (request.max or request.older_than_ms),
    )
    return wire.PurgeResponse(purged=int(purged))


def _check_not_negative(request: Any, *names: str) -> None:
    for name in names:
        if getattr(request, name) < 0:
            raise invalid_argument(f"{name} must not be negative.")


def status(request: None, context: Context) -> wire.StatusResponse:
    """Describe the broker and its database."""
    started = time.perf_counter()
    with connections[context.using].cursor() as cursor:
        cursor.execute("SELECT 1")
        cursor.fetchall()
    ping = time.perf_counter() - started
    facts = storage(context.using)
    schema = MetaEntry.objects.using(context.using).filter(key="schema").first()
    return wire.StatusResponse(
        version=__version__,
        backend="memory" if facts.path is None else "local file",
        remote=False,
        location=":memory:" if facts.path is None else str(facts.path),
        schema_version=schema.value if schema else "",
        ping_ms=int(ping * 1000),
        db_size_bytes=facts.size + facts.wal_size,
        queues=context.queues.using(context.using).count(),
        subscriptions=context.subscriptions.using(context.using).count(),
        uptime_ms=int((time.monotonic() - context.started_at) * 1000),
        auth=context.has_auth,
    )


# The table

Lane = Literal["write", "read"]
"""Short writes share commits. Reads, and writes of many transactions, have their own threads."""


def _queue_of(request: Any) -> Iterable[str]:
    return (request.queue,)


def _none(request: Any) -> Iterable[str]:
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Rpc:
    """A remote procedure: its path, its function, and the right that it needs for which names."""

    path: str
    run: Callable[[Any, Context], wire.Response]
    decode: Callable[[bytes], Any] | None
    right: Right
    names: Callable[[Any], Iterable[str | None]] = _queue_of
    """The queues and topics that a request uses; None means every queue."""

    lane: Lane = "write"

    def check_rights(self, request: Any, key: Key) -> None:
        """Raise an error that names the first right that the key does not have."""
        for name in self.names(request):
            if name != "":
                check_right(key, self.right, name)


def check_right(key: Key, right: Right, name: str | None = None) -> None:
    """Raise Refusal unless the key has the right on the queue or topic, or on every queue."""
    if not key.allows(right, name):
        where = "every queue" if name is None else repr(name)
        raise Refusal(
            403,
            "permission_denied",
            f"Access key {key.name!r} does not have the right {right!r} on {where}.",
        )


def _queue_rpc(method: str, kind: Any, run: Any, right: Right, lane: Lane = "write") -> Rpc:
    path = f"/mqlite.v1.QueueService/{method}"
    return Rpc(path=path, run=run, decode=wire.Decoder(kind), right=right, lane=lane)


def _admin_rpc(method: str, kind: Any, run: Any, names: Any = _none, lane: Lane = "read") -> Rpc:
    return Rpc(
        path=f"/mqlite.v1.AdminService/{method}",
        run=run,
        decode=wire.Decoder(kind) if kind else None,
        right="manage",
        names=names,
        lane=lane,
    )


RECEIVE = _queue_rpc("Receive", wire.ReceiveRequest, receive, "listen")

RPCS = {
    rpc.path: rpc
    for rpc in (
        _queue_rpc("Send", wire.SendRequest, send, "send"),
        RECEIVE,
        _queue_rpc("Complete", wire.SettleRequest, complete, "listen"),
        _queue_rpc("CompleteBatch", wire.LeaseBatchRequest, complete_batch, "listen"),
        _queue_rpc("RenewBatch", wire.LeaseBatchRequest, renew_batch, "listen"),
        _queue_rpc("Abandon", wire.SettleRequest, abandon, "listen"),
        _queue_rpc("Reject", wire.SettleRequest, reject, "listen"),
        _queue_rpc("Defer", wire.SettleRequest, defer, "listen"),
        _queue_rpc("ReceiveDeferred", wire.ReceiveDeferredRequest, receive_deferred, "listen"),
        _queue_rpc("Renew", wire.SettleRequest, renew, "listen"),
        _queue_rpc("Schedule", wire.SendRequest, send, "send"),
        _queue_rpc("Cancel", wire.CancelRequest, cancel, "send"),
        _queue_rpc("Peek", wire.PeekRequest, peek, "listen", lane="read"),
        _queue_rpc("Stats", wire.QueueRequest, stats, "listen", lane="read"),
        _admin_rpc(
            "CreateQueue",
            wire.CreateQueueRequest,
            create_queue,
            lambda request: (request.name,),
            lane="write",
        ),
        _admin_rpc(
            "Subscribe",
            wire.SubscribeRequest,
            subscribe,
            lambda request: (request.topic, request.name),
            lane="write",
        ),
        _admin_rpc("ListQueues", None, list_queues),
        _admin_rpc("ListSubscriptions", None, list_subscriptions),
        _admin_rpc("TestFilter", wire.TestFilterRequest, test_filter),
        _admin_rpc(
            "Redrive",
            wire.RedriveRequest,
            redrive,
            lambda request: (request.queue, request.target),
        ),
        _admin_rpc("Purge", wire.PurgeRequest, purge, _queue_of),
        _admin_rpc("Status", None, status, lambda request: (None,)),
    )
}
