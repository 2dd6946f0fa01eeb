"""The wire: one struct for each request and response, and their JSON.

Requests are decoded strictly, with the leniencies of Go's encoding/json that clients may rely on:
keys in any case, null for any value, line breaks in base64, and bytes as an array of numbers.
Responses are compact JSON with a line break at the end, and escape the characters of HTML.
"""

import json
from base64 import b64decode
from collections.abc import Mapping
from functools import cache
from types import UnionType
from typing import Annotated, Any, Generic, TypeVar, Union, get_args, get_origin, get_type_hints

from django.core.exceptions import ImproperlyConfigured

try:
    import msgspec
except ImportError as error:
    raise ImproperlyConfigured(
        "The HTTP broker needs the extra [http]: pip install 'django-mqlite[http]'"
    ) from error

Integer = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]


class Request(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A request. Every field may be absent or null, which is its zero value."""


class Response(msgspec.Struct, kw_only=True):
    """A response whose fields are always present."""


class Message(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """A message, in requests and responses. Responses omit fields with zero values.

    Fields that only the broker sets are accepted and ignored in requests.
    """

    seq_number: Integer = 0
    body: bytes = b""
    message_id: str = ""
    correlation_id: str = ""
    reply_to: str = ""
    group_id: str = ""
    content_type: str = ""
    subject: str = ""
    properties: dict[str, str] = {}
    enqueued_at_ms: Integer = 0
    expires_at_ms: Integer = 0
    visible_at_ms: Integer = 0
    delivery_count: Integer = 0
    locked_until_ms: Integer = 0
    lock_token: str = ""
    state: str = ""
    dead_letter_reason: str = ""
    dead_letter_description: str = ""


class SendRequest(Request):
    queue: str = ""
    messages: list[Message] = []
    scheduled_enqueue_time_ms: Integer = 0
    ttl_ms: Integer = 0


class SendResponse(Response):
    """The sequence numbers in the order of the messages; None for a request without messages."""

    seq_numbers: list[int] | None


class ReceiveRequest(Request):
    queue: str = ""
    max_messages: Integer = 0
    wait_time_ms: Integer = 0
    receive_mode: Integer = 0
    receive_attempt_id: str = ""


class ReceiveDeferredRequest(Request):
    queue: str = ""
    seq_numbers: list[Integer] = []


class MessagesResponse(Response):
    messages: list[Message]


class SettleRequest(Request):
    queue: str = ""
    seq_number: Integer = 0
    lock_token: str = ""
    dead_letter_reason: str = ""
    dead_letter_description: str = ""
    delay_ms: Integer = 0


class OkResponse(Response):
    ok: bool


class LeaseItem(Request):
    seq_number: Integer = 0
    lock_token: str = ""


class LeaseBatchRequest(Request):
    queue: str = ""
    messages: list[LeaseItem] = []


class LeaseResult(Response, omit_defaults=True):
    seq_number: int
    ok: bool
    locked_until_ms: int = 0


class LeaseBatchResponse(Response):
    results: list[LeaseResult]


class CancelRequest(Request):
    queue: str = ""
    seq_number: Integer = 0


class PeekRequest(Request):
    queue: str = ""
    from_seq: Integer = 0
    state: str = ""
    max: Integer = 0


class QueueRequest(Request):
    queue: str = ""


class StatsResponse(Response):
    queue: str
    active: int
    locked: int
    deferred: int
    scheduled: int
    dead_lettered: int
    total: int
    oldest_message_age_ms: int


class QueueConfig(Request):
    kind: str = ""
    lock_duration_ms: Integer = 0
    max_delivery_count: Integer = 0
    default_ttl_ms: Integer = 0
    dead_letter_on_expire: bool | None = None
    dedup_window_ms: Integer = 0
    ordering_mode: str = ""
    dlq_max_age_ms: Integer = 0
    dlq_max_count: Integer = 0
    dlq_max_bytes: Integer = 0


class CreateQueueRequest(Request):
    name: str = ""
    config: QueueConfig = msgspec.field(default_factory=QueueConfig)


class Filter(Request):
    expr: str = ""


class SubscribeRequest(Request):
    topic: str = ""
    name: str = ""
    filter: Filter | None = None


class EmptyResponse(Response):
    pass


class QueueInfo(Response):
    name: str
    kind: str
    lock_duration_ms: int
    max_delivery_count: int
    default_ttl_ms: int
    dedup_window_ms: int


class ListQueuesResponse(Response):
    queues: list[QueueInfo]


class SubscriptionInfo(Response, omit_defaults=True):
    topic: str
    name: str
    expr: str = ""


class ListSubscriptionsResponse(Response):
    subscriptions: list[SubscriptionInfo]


class TestFilterRequest(Request):
    expr: str = ""
    message: Message | None = None


class TestFilterResponse(Response, omit_defaults=True):
    valid: bool
    ran: bool
    matched: bool
    error: str = ""


class RedriveRequest(Request):
    queue: str = ""
    target: str = ""
    max: Integer = 0
    older_than_ms: Integer = 0
    rate_per_sec: Integer = 0


class RedriveResponse(Response):
    moved: int


class PurgeRequest(Request):
    queue: str = ""
    max: Integer = 0
    older_than_ms: Integer = 0


class PurgeResponse(Response):
    purged: int


class StatusResponse(Response):
    version: str
    backend: str
    remote: bool
    location: str
    schema_version: str
    ping_ms: int
    db_size_bytes: int
    queues: int
    subscriptions: int
    uptime_ms: int
    auth: bool


class DiscoveryCard(Response):
    name: str
    description: str
    version: str
    status: str
    auth: str
    docs: str
    endpoints: list[str]
    health: str
    metrics: str


class ErrorBody(Response):
    code: str
    message: str


T = TypeVar("T")


class Decoder(Generic[T]):
    """Decode requests of one type."""

    def __init__(self, kind: type[T]) -> None:
        self._kind = kind
        self._strict = msgspec.json.Decoder(kind)

    def __call__(self, body: bytes) -> T:
        """Return the request; raise ValueError if the body is not its JSON."""
        try:
            return self._strict.decode(body)
        except (ValueError, RecursionError):
            return _decode_like_go(body, self._kind)


_encoder = msgspec.json.Encoder()

ESCAPES = (
    (b"<", b"\\u003c"),
    (b">", b"\\u003e"),
    (b"&", b"\\u0026"),
    ("\u2028".encode(), b"\\u2028"),
    ("\u2029".encode(), b"\\u2029"),
)
"""These bytes occur only inside of JSON strings."""


def encode(response: Response) -> bytes:
    """Return the response as one line of JSON."""
    text = _encoder.encode(response)
    for character, escape in ESCAPES:
        text = text.replace(character, escape)
    return text + b"\n"


class _Pairs(list[tuple[str, Any]]):
    """The members of a JSON object in their order."""


def _decode_like_go(body: bytes, kind: type[T]) -> T:
    """Decode a request that needs the leniencies, or raise ValueError with what is wrong."""
    if not body.strip():
        raise ValueError("The request body is empty (EOF); send a JSON object.")
    try:
        document = json.loads(
            body.decode(errors="replace"),
            object_pairs_hook=_Pairs,
            parse_float=_refuse_number,
            parse_constant=_refuse_number,
        )
    except RecursionError as error:
        raise ValueError("The JSON is nested too deeply.") from error
    return msgspec.convert({} if document is None else _value(document, kind), kind)


def _refuse_number(text: str) -> Any:
    raise ValueError(f"{text:.40} is not an integer.")


def _value(value: Any, kind: Any) -> Any:
    """Return the value as msgspec expects it for this type; wrong types are left to msgspec."""
    if isinstance(value, _Pairs):
        return _object(value, kind)
    if isinstance(value, str):
        return _bytes_of(value) if kind is bytes else _text(value)
    if isinstance(value, list):
        if kind is bytes:
            return _bytes_of_numbers(value)
        item_kind = get_args(kind)[0] if get_origin(kind) is list else Any
        return [_zero(item_kind) if item is None else _value(item, item_kind) for item in value]
    return value


def _object(pairs: _Pairs, kind: Any) -> Any:
    if not isinstance(kind, type) or not issubclass(kind, msgspec.Struct):
        return {_text(key): "" if item is None else _value(item, Any) for key, item in pairs}
    fields = _fields(kind)
    members: dict[str, Any] = {}
    for key, item in pairs:
        name, field_kind = fields.get(key) or fields.get(key.casefold()) or (_text(key), Any)
        if item is not None:
            members[name] = _value(item, field_kind)
        elif name not in fields:
            members[name] = None  # msgspec refuses the unknown field
    return members


@cache
def _fields(kind: Any) -> Mapping[str, tuple[str, Any]]:
    return {name: (name, _plain(hint)) for name, hint in get_type_hints(kind).items()}


def _plain(hint: Any) -> Any:
    """Return the type of a field without `| None`."""
    if get_origin(hint) in (Union, UnionType):
        return next(part for part in get_args(hint) if part is not type(None))
    return hint


def _zero(kind: Any) -> Any:
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return {}
    return "" if kind is str else 0


def _bytes_of(text: str) -> bytes:
    try:
        return b64decode(text.replace("\r", "").replace("\n", ""), validate=True)
    except ValueError as error:
        raise ValueError(f"Invalid base64: {error}.") from error


def _bytes_of_numbers(numbers: list[Any]) -> bytes:
    try:
        return bytes(0 if number is None else number for number in numbers)
    except TypeError as error:
        raise ValueError("A body must be base64, or an array of numbers from 0 to 255.") from error


def _text(text: str) -> str:
    """Return the text with U+FFFD in place of lone surrogates."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
