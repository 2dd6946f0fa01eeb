"""Traces with OpenTelemetry, if its API is installed: the extra [otel].

An enqueue stores the trace context of the caller in the message's properties, in the format of the
W3C. A delivery is a span of its own trace, linked to that context, because it may run much later
and several times. Names and attributes follow the semantic conventions for messaging.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from typing import Any

from .exceptions import Retry
from .guard import call_guarded, get_logger, run_guarded
from .message import MAX_PROPERTIES
from .types import NewMessage

logger = get_logger("django_mqlite")

Finish = Callable[[BaseException | None], None]


@cache
def _api() -> Any:
    """Return OpenTelemetry's modules that are used here; None if they are not installed."""
    try:
        from opentelemetry import context, trace  # noqa: PLC0415 - an extra
        from opentelemetry.trace.propagation import tracecontext  # noqa: PLC0415
    except ImportError:
        return None
    return trace, context.Context, tracecontext.TraceContextTextMapPropagator()


def _tracer() -> Any:
    trace, *_ = _api()
    return trace.get_tracer("django_mqlite")


def with_trace(message: NewMessage) -> NewMessage:
    """Return the message with `traceparent` in its properties, if the caller has a trace.

    A `traceparent` that the caller has passed is kept, and nothing is added beyond the limit.
    """
    carrier = call_guarded(_current_trace, lambda error: {}) if _api() else {}
    if not carrier:
        return message
    properties = json.loads(message.properties or "{}")
    if "traceparent" in properties:
        return message
    encoded = json.dumps({**properties, **carrier}, ensure_ascii=False)
    if len(encoded.encode()) > MAX_PROPERTIES:
        return message
    return replace(message, properties=encoded)


def _current_trace() -> dict[str, str]:
    """Return `traceparent`, and `tracestate` if there is one; {} outside a trace."""
    _, _, propagator = _api()
    carrier: dict[str, str] = {}
    propagator.inject(carrier)
    return carrier


@contextmanager
def delivery_span(message: Any) -> Iterator[Finish]:
    """Run the block in a span for a delivery; yield the function that records its error."""
    if _api() is None:
        yield lambda error: None
        return
    span = call_guarded(lambda: _start(message), lambda error: None)
    if span is None:
        yield lambda error: None
        return
    trace, *_ = _api()
    with trace.use_span(span, record_exception=False, set_status_on_exception=False):
        try:
            yield lambda error: run_guarded(lambda: _record(span, error))
        finally:
            run_guarded(span.end)


def _start(message: Any) -> Any:
    trace, new_context, _ = _api()
    origin = _origin(message.properties)
    return _tracer().start_span(
        f"process {message.queue}",
        context=new_context(),
        kind=trace.SpanKind.CONSUMER,
        links=[trace.Link(origin)] if origin is not None else [],
        attributes=_attributes(message),
    )


def _origin(properties: Any) -> Any:
    """Return the context in which the message was enqueued; None if it has none that is valid."""
    if not isinstance(properties, Mapping):
        return None
    carrier = {key: properties.get(key) for key in ("traceparent", "tracestate")}
    trace, new_context, propagator = _api()
    texts = {key: value for key, value in carrier.items() if isinstance(value, str)}
    context = propagator.extract(texts, context=new_context())
    origin = trace.get_current_span(context).get_span_context()
    return origin if origin.is_valid else None


def _attributes(message: Any) -> dict[str, str | int]:
    attributes: dict[str, str | int | None] = {
        "messaging.system": "django_mqlite",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": message.queue,
        "messaging.message.id": str(message.pk),
        "messaging.message.conversation_id": message.correlation_id,
        "messaging.message.body.size": len(message.body),
        "django_mqlite.message_id": message.message_id,
        "django_mqlite.delivery_count": message.delivery_count,
        "django_mqlite.subject": message.subject,
    }
    return {name: value for name, value in attributes.items() if value is not None}


def _record(span: Any, error: BaseException | None) -> None:
    """Record the error of the delivery; a retry that the handler requested is none."""
    if error is None or isinstance(error, Retry):
        return
    trace, *_ = _api()
    kind = type(error)
    span.record_exception(error)
    span.set_attribute("error.type", f"{kind.__module__}.{kind.__qualname__}")
    span.set_status(trace.Status(trace.StatusCode.ERROR))
