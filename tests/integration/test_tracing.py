"""22 Traces: an enqueue carries the caller's context, and each delivery is a span linked to it."""

import subprocess
import sys

import pytest

pytest.importorskip("opentelemetry.sdk", reason="NOT TESTED: opentelemetry-sdk is absent")
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from django_mqlite import Reject, Retry, enqueue, enqueue_many, handler, handlers, publish, tracing
from django_mqlite.handlers import Handler
from django_mqlite.models import Message, Subscription
from django_mqlite.testing import drain
from django_mqlite.worker.executor import Executor
from tests.support.source import ROOT

pytestmark = pytest.mark.django_db

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
def exporter(monkeypatch):
    """The spans that have ended."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(tracing, "_tracer", lambda: provider.get_tracer("test"))
    return exporter


@pytest.fixture
def caller(exporter):
    """The span of a request in which the test runs."""
    with tracing._tracer().start_as_current_span("GET /order") as span:
        yield span.get_span_context()


@pytest.fixture
def handle(monkeypatch, queue):
    """Register a handler of the queue."""
    monkeypatch.setattr(handlers, "_handlers", {})
    return handler("jobs")


def deliveries(exporter):
    return [span for span in exporter.get_finished_spans() if span.kind == SpanKind.CONSUMER]


def traceparent(context):
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"


# 22.1


@pytest.mark.rule("22.1")
def test_enqueue_stores_the_context_of_the_caller(queue, caller):
    Subscription.objects.subscribe("topic", "copies")

    enqueue("jobs", 1, properties={"a": "b"})
    enqueue_many("jobs", [2, 3])
    publish("topic", 4)

    properties = [message.properties for message in Message.objects.order_by("pk")]
    expected = {"traceparent": traceparent(caller)}
    assert properties == [{"a": "b", **expected}, expected, expected, expected]


@pytest.mark.rule("22.1")
def test_context_that_the_caller_passes_is_kept(queue, caller):
    enqueue("jobs", 1, properties={"traceparent": PARENT})

    assert Message.objects.get().properties == {"traceparent": PARENT}


@pytest.mark.rule("22.1")
def test_context_never_exceeds_the_limit_of_properties(queue, caller):
    properties = {"a": "b" * 65_520}

    enqueue("jobs", 1, properties=properties)

    assert Message.objects.get().properties == properties


@pytest.mark.rule("22.1")
def test_enqueue_outside_a_trace_stores_nothing(queue, exporter):
    enqueue("jobs", 1)

    assert Message.objects.get().properties is None


# 22.2


@pytest.mark.rule("22.2")
def test_delivery_is_a_span_linked_to_the_enqueue(queue, exporter, caller, handle):
    inside = []
    handle(lambda message: inside.append(trace.get_current_span().get_span_context()))
    message = enqueue("jobs", {"a": 1}, message_id="m", correlation_id="c", subject="s")

    drain()

    (span,) = deliveries(exporter)
    assert span.name == "process jobs"
    assert [link.context.span_id for link in span.links] == [caller.span_id]
    assert span.parent is None
    assert span.context.trace_id != caller.trace_id
    assert inside == [span.context]
    assert span.status.status_code == StatusCode.UNSET
    assert dict(span.attributes) == {
        "messaging.system": "django_mqlite",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": "jobs",
        "messaging.message.id": str(message.pk),
        "messaging.message.conversation_id": "c",
        "messaging.message.body.size": 7,
        "django_mqlite.message_id": "m",
        "django_mqlite.delivery_count": 1,
        "django_mqlite.subject": "s",
    }


@pytest.mark.rule("22.2")
def test_message_without_a_valid_context_is_a_span_without_a_link(queue, exporter, handle):
    handle(lambda message: None)
    enqueue("jobs", 1)
    enqueue("jobs", 2, properties={"traceparent": "nonsense", "tracestate": "\0"[1:]})

    drain()

    assert [span.links for span in deliveries(exporter)] == [(), ()]


@pytest.mark.rule("22.2")
def test_each_delivery_is_a_span_and_records_its_error(queue, exporter, handle):
    errors = [KeyError("first"), Retry(delay=1), Reject("Never")]

    @handle
    def fail(message):
        raise errors.pop(0)

    enqueue("jobs", {"secret": "body"})
    drain(retries=True)

    first, retried, rejected = deliveries(exporter)
    assert [
        span.attributes["django_mqlite.delivery_count"] for span in (first, retried, rejected)
    ] == [1, 2, 3]
    assert first.status.status_code == StatusCode.ERROR
    assert first.attributes["error.type"] == "builtins.KeyError"
    assert first.events[0].name == "exception"
    assert retried.status.status_code == StatusCode.UNSET
    assert rejected.attributes["error.type"] == "django_mqlite.exceptions.Reject"
    assert "secret" not in first.to_json()


@pytest.mark.rule("22.2")
@pytest.mark.django_db(transaction=True)
def test_worker_makes_spans_for_functions_and_coroutines(queue, exporter):
    names = []

    def function(message):
        names.append(trace.get_current_span().name)

    async def coroutine(message):
        names.append(trace.get_current_span().name)
        raise ValueError("no")

    for handles in (function, coroutine):
        executor = Executor(
            handlers={"jobs": Handler(queue="jobs", function=handles)}, using="default"
        )
        enqueue("jobs", 1)
        (message,) = Message.objects.claim("jobs")
        executor.run(message) if handles is function else _run(executor, message)
        executor.contexts.close()

    assert names == ["process jobs"] * 2
    assert [span.status.status_code for span in deliveries(exporter)] == [
        StatusCode.UNSET,
        StatusCode.ERROR,
    ]


def _run(executor, message):
    import asyncio  # noqa: PLC0415

    asyncio.run(executor.run_async(message))


@pytest.mark.rule("22.2")
def test_tracer_that_fails_does_not_fail_the_delivery(queue, handle, monkeypatch, caplog):
    monkeypatch.setattr(tracing, "_tracer", lambda: None)
    handled = []
    handle(handled.append)
    enqueue("jobs", 1)

    drain()

    assert len(handled) == 1


# 22.3


@pytest.mark.rule("22.3")
def test_without_the_api_nothing_is_stored_or_traced(queue, exporter, caller, handle, monkeypatch):
    monkeypatch.setattr(tracing, "_api", lambda: None)
    handled = []
    handle(handled.append)
    enqueue("jobs", 1)

    drain()

    assert handled[0].properties is None
    assert deliveries(exporter) == []


@pytest.mark.rule("22.3")
def test_package_does_not_import_opentelemetry_until_it_is_used():
    code = (
        "import os, sys, django; os.environ['DJANGO_SETTINGS_MODULE'] = 'tests.settings';"
        "django.setup(); import django_mqlite.worker.executor, django_mqlite.tracing as tracing;"
        "imported = 'opentelemetry' in sys.modules; sys.modules['opentelemetry'] = None;"
        "sys.exit(imported or tracing._api() is not None)"
    )

    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0
