"""Our own RPCs, which mqlite does not have: /django_mqlite.v1.QueueService.

They have a service of their own, because a client of mqlite's must be able to tell that another
broker does not have them, and because mqlite refuses unknown fields in its requests.
"""

from collections.abc import Iterable
from typing import Any

from ..exceptions import DuplicateConflict, LockLost, QueueNotFound, TopicNotFound, stored_failures
from ..message import Draft, MessageOptions
from ..timing import MAX_DURATION_MS
from ..types import Abandonment, Lease, Outcome, Rejection, Right, State
from . import additions_wire as own
from . import wire
from .errors import Refusal, invalid_argument
from .verbs import (
    Context,
    Lane,
    Rpc,
    duration,
    future,
    last_copy,
    message_texts,
    milliseconds_of,
    named,
    peeked,
)

# Sending


def send(request: own.SendWithOptionsRequest, context: Context) -> own.SendWithOptionsResponse:
    """Store messages with options of their own in a queue, or publish them to a topic.

    All are stored in one transaction, or none. A single message whose message_id was used with
    different data is refused with already_exists; among others, it is left out.
    """
    queue = named(request.queue)
    drafts = [Draft(message.body, **_options(message)) for message in request.messages]
    try:
        stored = context.messages.enqueue_many(queue, drafts)
    except QueueNotFound as error:
        try:
            stored = [last_copy(copies) for copies in context.messages.publish_many(queue, drafts)]
        except TopicNotFound:
            raise error from None
    if len(stored) == 1 and isinstance(stored[0], DuplicateConflict):
        raise stored[0]
    return own.SendWithOptionsResponse(
        results=[
            own.SentMessage(
                seq_number=getattr(message, "pk", 0),
                duplicate=getattr(message, "duplicate", False),
                conflict=isinstance(message, DuplicateConflict),
            )
            for message in stored
        ]
    )


def _options(message: own.NewMessage) -> MessageOptions:
    for name in ("delay_ms", "scheduled_enqueue_time_ms", "ttl_ms", "max_delivery_count"):
        if getattr(message, name) < 0:
            raise invalid_argument(f"{name} must not be negative.")
    if message.delay_ms and message.scheduled_enqueue_time_ms:
        raise invalid_argument("Send either delay_ms or scheduled_enqueue_time_ms, not both.")
    options = message_texts(message)
    options["priority"] = message.priority
    options["unique_key"] = message.unique_key or None
    if message.max_delivery_count:
        options["max_delivery_count"] = message.max_delivery_count
    if message.ttl_ms:
        options["ttl"] = duration(message.ttl_ms)
    if message.delay_ms:
        options["delay"] = duration(message.delay_ms)
    if message.scheduled_enqueue_time_ms:
        options["visible_at"] = future(message.scheduled_enqueue_time_ms)
    return options


# Settling


def abandon_batch(request: own.AbandonBatchRequest, context: Context) -> wire.LeaseBatchResponse:
    """Return many messages to their queue in one transaction.

    Each comes back after its `delay_ms`, or after the backoff of the queue if `backoff` is true.
    """
    return _settle_batch(
        request.queue,
        [(item, _abandonment(item), item.error or None) for item in request.messages],
        context,
    )


def _abandonment(item: own.AbandonedLease) -> Abandonment:
    if not 0 <= item.delay_ms <= MAX_DURATION_MS:
        raise invalid_argument(
            f"delay_ms must be between 0 and {MAX_DURATION_MS}, not {item.delay_ms}."
        )
    if item.backoff and item.delay_ms:
        raise invalid_argument("Send either delay_ms or backoff, not both.")
    return Abandonment(delay_ms=None if item.backoff else item.delay_ms)


def reject_batch(request: own.RejectBatchRequest, context: Context) -> wire.LeaseBatchResponse:
    """Dead-letter many messages in one transaction."""
    return _settle_batch(
        request.queue,
        [(item, _rejection(item), None) for item in request.messages],
        context,
    )


def _rejection(item: own.RejectedLease) -> Rejection:
    return Rejection(
        reason=item.dead_letter_reason or "AppRequested",
        description=item.dead_letter_description,
    )


def _settle_batch(
    queue: str, items: Iterable[tuple[Any, Outcome, str | None]], context: Context
) -> wire.LeaseBatchResponse:
    deliveries = [
        (Lease(queue=queue, id=item.seq_number, lock_token=item.lock_token), outcome, error)
        for item, outcome, error in items
    ]
    held = context.messages.settle_each(deliveries)
    return wire.LeaseBatchResponse(
        results=[
            wire.LeaseResult(seq_number=lease.id, ok=ok)
            for (lease, _, _), ok in zip(deliveries, held, strict=True)
        ]
    )


def extend(request: own.ExtendRequest, context: Context) -> own.ExtendResponse:
    """Extend a lease, and return its new deadline. A lease is never shortened."""
    if request.lock_duration_ms < 0:
        raise invalid_argument("lock_duration_ms must not be negative.")
    lease = Lease(queue=request.queue, id=request.seq_number, lock_token=request.lock_token)
    lock_duration = duration(request.lock_duration_ms) if request.lock_duration_ms else None
    until = context.messages.renew_leases([lease], lock_duration)
    if lease not in until:
        context.queues.named(named(request.queue))
        raise LockLost(request.queue, request.seq_number, "renew")
    return own.ExtendResponse(locked_until_ms=until[lease])


# Single messages


def get_message(request: own.MessageRequest, context: Context) -> own.GetMessageResponse:
    """Return a message of any state with its body, without a lease."""
    queue = named(request.queue)
    message = next(iter(context.messages.browse(queue, from_id=request.seq_number, limit=1)), None)
    if message is None or message.pk != request.seq_number:
        raise _no_message(request)
    return own.GetMessageResponse(
        message=peeked(
            message,
            kind=own.StoredMessage,
            priority=message.priority,
            unique_key=message.unique_key or "",
            max_delivery_count=message.max_delivery_count,
            locked_by=message.locked_by or "",
            finished_at_ms=milliseconds_of(message.finished_at),
            failures=[_failure(failure) for failure in stored_failures(message.errors)],
        )
    )


def _failure(failure: Any) -> own.Failure:
    return own.Failure(
        error_class=failure.get("class", ""),
        message=str(failure.get("message", "")),
        delivery=failure.get("delivery", 0),
        failed_at_ms=failure.get("failed_at", 0),
    )


def why(request: own.MessageRequest, context: Context) -> own.WhyResponse:
    """Explain why a message has not run, what holds it, or how it ended.

    A message that no longer exists is explained as far as it is known.
    """
    queue = named(request.queue)
    context.queues.named(queue)
    explanation = context.messages.explain(request.seq_number)
    if explanation.facts["queue"] not in (None, queue):
        raise _no_message(request)
    return own.WhyResponse(
        seq_number=request.seq_number,
        code=explanation.code,
        text=explanation.text,
        facts=dict(explanation.facts),
    )


def discard(request: own.MessageRequest, context: Context) -> wire.OkResponse:
    """End an unfinished message without delivering it again: it becomes a dead letter.

    If it is locked, its lease ends at once.
    """
    queue = named(request.queue)
    if not context.messages.discard(request.seq_number, queue=queue):
        raise _no_message(request, "unfinished ")
    return wire.OkResponse(ok=True)


def activate(request: own.MessageRequest, context: Context) -> wire.OkResponse:
    """Make a deferred message active again."""
    queue = named(request.queue)
    if not context.messages.activate(request.seq_number, queue=queue):
        raise _no_message(request, f"{State.DEFERRED} ")
    return wire.OkResponse(ok=True)


def _no_message(request: own.MessageRequest, which: str = "") -> Refusal:
    return Refusal(
        404, "not_found", f"Queue {request.queue!r} has no {which}message #{request.seq_number}."
    )


# Queues


def pause(request: wire.QueueRequest, context: Context) -> own.ChangedResponse:
    """Stop the delivery of a queue's messages; those that are locked stay with their holders."""
    return _set_paused(request, context, paused=True)


def resume(request: wire.QueueRequest, context: Context) -> own.ChangedResponse:
    """Deliver the messages of a paused queue again."""
    return _set_paused(request, context, paused=False)


def _set_paused(
    request: wire.QueueRequest, context: Context, *, paused: bool
) -> own.ChangedResponse:
    queue = context.queues.named(named(request.queue))
    return own.ChangedResponse(changed=context.queues.set_paused(queue, paused))


def unsubscribe(request: own.UnsubscribeRequest, context: Context) -> wire.OkResponse:
    """Delete a subscription, and its queue with all messages."""
    name = named(request.name, "name")
    if not context.subscriptions.unsubscribe(name):
        raise Refusal(404, "not_found", f"There is no subscription {name!r}.")
    return wire.OkResponse(ok=True)


def delete_queue(request: own.DeleteQueueRequest, context: Context) -> wire.OkResponse:
    """Delete a queue. One with unfinished messages or dead letters needs `everything`."""
    name = named(request.name, "name")
    if not context.queues.delete_queue(name, everything=request.everything):
        raise QueueNotFound(name)
    return wire.OkResponse(ok=True)


# The table


def _rpc(
    method: str, kind: Any, run: Any, right: Right, lane: Lane = "write", field: str = "queue"
) -> Rpc:
    return Rpc(
        path=f"/django_mqlite.v1.QueueService/{method}",
        run=run,
        decode=wire.Decoder(kind),
        right=right,
        names=lambda request: (getattr(request, field),),
        lane=lane,
    )


ADDITIONS = {
    rpc.path: rpc
    for rpc in (
        _rpc("Send", own.SendWithOptionsRequest, send, "send"),
        _rpc("AbandonBatch", own.AbandonBatchRequest, abandon_batch, "listen"),
        _rpc("RejectBatch", own.RejectBatchRequest, reject_batch, "listen"),
        _rpc("Extend", own.ExtendRequest, extend, "listen"),
        _rpc("GetMessage", own.MessageRequest, get_message, "listen", "read"),
        _rpc("Why", own.MessageRequest, why, "listen", "read"),
        _rpc("Discard", own.MessageRequest, discard, "manage"),
        _rpc("Activate", own.MessageRequest, activate, "manage"),
        _rpc("Pause", wire.QueueRequest, pause, "manage"),
        _rpc("Resume", wire.QueueRequest, resume, "manage"),
        _rpc("Unsubscribe", own.UnsubscribeRequest, unsubscribe, "manage", "read", "name"),
        _rpc("DeleteQueue", own.DeleteQueueRequest, delete_queue, "manage", "read", "name"),
    )
}
