"""The requests and responses of our own RPCs, which mqlite does not have."""

from typing import Any

from .wire import Integer, Message, Request, Response


class NewMessage(Request):
    """A message to send. Absent fields take the defaults of the queue."""

    body: bytes = b""
    message_id: str = ""
    correlation_id: str = ""
    reply_to: str = ""
    group_id: str = ""
    content_type: str = ""
    subject: str = ""
    properties: dict[str, str] = {}
    priority: Integer = 0
    unique_key: str = ""
    max_delivery_count: Integer = 0
    ttl_ms: Integer = 0
    delay_ms: Integer = 0
    scheduled_enqueue_time_ms: Integer = 0


class SendWithOptionsRequest(Request):
    """Messages for a queue or a topic."""

    queue: str = ""
    messages: list[NewMessage] = []


class SentMessage(Response):
    """What became of one message of a request.

    `duplicate`: it was not stored, and `seq_number` is the message that it repeats. `conflict`: it
    was not stored, because its message_id was used with different data. `seq_number` is 0 for a
    conflict, and if no subscription of a topic took the message.
    """

    seq_number: int
    duplicate: bool
    conflict: bool


class SendWithOptionsResponse(Response):
    """One result for each message, in the order of the request."""

    results: list[SentMessage]


class AbandonedLease(Request):
    """A lease to give back. `error` is recorded with the message."""

    seq_number: Integer = 0
    lock_token: str = ""
    delay_ms: Integer = 0
    backoff: bool = False
    error: str = ""


class AbandonBatchRequest(Request):
    """Leases of one queue."""

    queue: str = ""
    messages: list[AbandonedLease] = []


class RejectedLease(Request):
    """A message to dead-letter."""

    seq_number: Integer = 0
    lock_token: str = ""
    dead_letter_reason: str = ""
    dead_letter_description: str = ""


class RejectBatchRequest(Request):
    """Leases of one queue."""

    queue: str = ""
    messages: list[RejectedLease] = []


class ExtendRequest(Request):
    """A lease to extend; `lock_duration_ms` 0 is the lock duration of the queue."""

    queue: str = ""
    seq_number: Integer = 0
    lock_token: str = ""
    lock_duration_ms: Integer = 0


class ExtendResponse(Response):
    """The new deadline of the lease."""

    locked_until_ms: int


class MessageRequest(Request):
    """One message of a queue."""

    queue: str = ""
    seq_number: Integer = 0


class Failure(Response):
    """A delivery that failed. Fields that were not recorded are empty."""

    error_class: str
    message: str
    delivery: int
    failed_at_ms: int


class StoredMessage(Message, forbid_unknown_fields=False):
    """A message with everything that the queue knows about it, except its lock token."""

    priority: Integer = 0
    unique_key: str = ""
    max_delivery_count: Integer = 0
    locked_by: str = ""
    finished_at_ms: Integer = 0
    failures: list[Failure] = []


class GetMessageResponse(Response):
    """A message."""

    message: StoredMessage


class WhyResponse(Response):
    """Why a message has not run, or how it ended.

    `code` is stable, for programs; `text` is a sentence without its subject; `facts` are the values
    in it.
    """

    seq_number: int
    code: str
    text: str
    facts: dict[str, Any]


class ChangedResponse(Response):
    """`changed` is false if the queue was in this state already."""

    changed: bool


class UnsubscribeRequest(Request):
    """The name of a subscription."""

    name: str = ""


class DeleteQueueRequest(Request):
    """A queue to delete; `everything` also deletes unfinished messages and dead letters."""

    name: str = ""
    everything: bool = False
