"""Metrics for Prometheus: what the database has, and what this process has counted.

`metrics` is a view for any project. A broker serves the same at /metrics, and a worker with
--metrics-port. The names that begin with `mqlite_` are those of mqlite.
"""

from collections import Counter as Count
from collections.abc import Iterable, Iterator, Mapping
from threading import Lock
from typing import Any
from wsgiref.simple_server import WSGIServer

from django.contrib.auth.decorators import login_not_required
from django.core.exceptions import ImproperlyConfigured
from django.db import Error, connections
from django.http import HttpRequest, HttpResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from .. import timing
from ..checks import queue_alias
from ..exceptions import MqliteError
from ..guard import get_logger
from ..models import AccessKey, Queue, Schedule
from ..signals import message_completed
from ..types import QueueStats, ScheduleStatus
from ..verbs.database_file import storage
from ..verbs.tallies import DurationTotals, delivery_totals
from ..verbs.workers import busy_slots, counted_deliveries, live_workers

try:
    from prometheus_client import CollectorRegistry, Histogram, generate_latest, start_http_server
    from prometheus_client.core import (
        CounterMetricFamily,
        GaugeMetricFamily,
        HistogramMetricFamily,
        Metric,
    )
    from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
    from prometheus_client.registry import Collector
except ImportError as error:
    raise ImproperlyConfigured(
        "Metrics need the extra django-mqlite[metrics], which installs prometheus-client."
    ) from error

logger = get_logger("django_mqlite.http")

RPC_BUCKETS = (
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0),
)
"""The upper bounds of the durations of RPCs in seconds; a long poll takes up to 20 s."""

DOUBLINGS = range(0, 24, 2)
"""The upper bounds of waits and runs, in powers of two of a millisecond: 1 ms to 70 minutes."""


class ProcessCounts:
    """What this process has counted since it started: the RPCs and completions of a broker."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._rpcs = Histogram(
            "mqlite_rpc_duration_seconds",
            "Duration of the RPCs of this broker.",
            ["rpc"],
            buckets=RPC_BUCKETS,
            registry=self.registry,
        )
        self._completed: Count[str] = Count()
        self._lock = Lock()

    def observe_rpc(self, rpc: str, seconds: float) -> None:
        """Count an RPC, by its name such as "Send"."""
        self._rpcs.labels(rpc).observe(seconds)

    def count_completions(self) -> None:
        """Count the messages that clients of this broker complete. Repeating the call is safe."""
        message_completed.connect(self._completion, dispatch_uid="django_mqlite.metrics")

    def _completion(self, *, queue: str, **facts: Any) -> None:
        with self._lock:
            self._completed[queue] += 1

    def completed(self, queue: str) -> int:
        """Return the number of messages of the queue that clients have completed."""
        return self._completed[queue]


process_counts = ProcessCounts()


class DatabaseCollector(Collector):
    """The metrics that are read from the database at each scrape."""

    def __init__(self, using: str) -> None:
        self._using = using

    def collect(self) -> Iterator[Metric]:
        """Yield every metric."""
        queues = Queue.objects.db_manager(self._using)
        stats = queues.stats()
        yield from _depths(stats)
        enqueued_at = {row.queue: queues.oldest_enqueued_at(row.queue) for row in stats}
        yield _gauges(
            "mqlite_queue_oldest_message_age_ms",
            "Age of the oldest active or locked message of the queue; 0 without one.",
            {
                (queue,): 0 if at is None else max(0, timing.now_ms() - at)
                for queue, at in enqueued_at.items()
            },
            labels=["queue"],
        )
        yield from self._deliveries(stats)
        yield from self._workers(stats)
        yield from self._schedules()
        yield from self._file()

    def _deliveries(self, stats: list[QueueStats]) -> Iterator[Metric]:
        deliveries = counted_deliveries(self._using)
        totals = {row.queue: delivery_totals(deliveries, row.queue) for row in stats}
        yield _counter(
            "mqlite_messages_completed",
            "Messages completed, by workers and by clients of this broker.",
            {
                (queue,): total.outcomes["completed"] + process_counts.completed(queue)
                for queue, total in totals.items()
            },
            labels=["queue"],
        )
        yield _counter(
            "django_mqlite_deliveries",
            "Deliveries of workers, by outcome.",
            {
                (queue, outcome): count
                for queue, total in totals.items()
                for outcome, count in total.outcomes.items()
            },
            labels=["queue", "outcome"],
        )
        yield _histogram(
            "django_mqlite_wait_seconds",
            "Time from when a message was due until a worker claimed it.",
            {queue: total.wait for queue, total in totals.items()},
        )
        yield _histogram(
            "django_mqlite_run_seconds",
            "Time from the claim of a message to the end of its delivery.",
            {queue: total.run for queue, total in totals.items()},
        )

    def _workers(self, stats: list[QueueStats]) -> Iterator[Metric]:
        workers = live_workers(self._using)
        busy = busy_slots(self._using, [worker.worker for worker in workers])
        serving = {
            row.queue: [worker for worker in workers if row.queue in worker.queues] for row in stats
        }
        yield _gauge("django_mqlite_workers", "Live workers.", len(workers))
        yield _gauge(
            "django_mqlite_worker_slots",
            "Messages that the live workers can handle at the same time.",
            sum(worker.slots for worker in workers if worker.queues),
        )
        yield _gauge(
            "django_mqlite_worker_slots_busy",
            "Messages that the live workers are handling.",
            sum(busy.values()),
        )
        yield _gauges(
            "django_mqlite_queue_workers",
            "Live workers that serve the queue.",
            {(queue,): len(of_queue) for queue, of_queue in serving.items()},
            labels=["queue"],
        )

    def _schedules(self) -> Iterator[Metric]:
        try:
            statuses = Schedule.objects.db_manager(self._using).statuses()
        except (MqliteError, ImproperlyConfigured) as error:  # the project's code is broken
            logger.warning("the metrics have no schedules: %s", error)
            statuses = []
        yield from _schedule_metrics(statuses)

    def _file(self) -> Iterator[Metric]:
        facts = storage(self._using)
        yield _gauges(
            "django_mqlite_database_bytes",
            "Size of the database file and of its write-ahead log.",
            {("main",): facts.size, ("wal",): facts.wal_size},
            labels=["file"],
        )
        yield _gauge(
            "django_mqlite_database_free_bytes",
            "Unused space inside the database file.",
            facts.free,
        )


def _depths(stats: list[QueueStats]) -> Iterator[Metric]:
    now = timing.now_ms()
    yield _gauges(
        "mqlite_queue_messages",
        "Messages in a queue by state.",
        {(row.queue, state): count for row in stats for state, count in row.counts.items()},
        labels=["queue", "state"],
    )
    per_queue: Mapping[str, tuple[str, Mapping[str, float]]] = {
        "mqlite_queue_total": (
            "Messages in a queue.",
            {row.queue: sum(row.counts.values()) for row in stats},
        ),
        "django_mqlite_queue_due_seconds": (
            "Time for which the oldest due message of the queue has been due; 0 if none is.",
            {
                row.queue: 0 if row.due_since_ms is None else max(0, now - row.due_since_ms) / 1000
                for row in stats
            },
        ),
        "django_mqlite_queue_blocked": (
            "Active messages that wait behind the head of their group.",
            {row.queue: row.blocked for row in stats},
        ),
        "django_mqlite_queue_retrying": (
            "Scheduled messages that have failed before.",
            {row.queue: row.retrying for row in stats},
        ),
        "django_mqlite_queue_paused": (
            "1 if the queue is paused.",
            {row.queue: int(row.paused) for row in stats},
        ),
    }
    for name, (text, values) in per_queue.items():
        keyed: dict[tuple[str, ...], float] = {(queue,): n for queue, n in values.items()}
        yield _gauges(name, text, keyed, labels=["queue"])


def _schedule_metrics(statuses: Iterable[ScheduleStatus]) -> Iterator[Metric]:
    rows = list(statuses)
    for name, text, times in (
        ("next", "Time of the next run.", {row.name: row.next_run for row in rows}),
        ("last", "Time of the last run.", {row.name: row.last_run for row in rows}),
    ):
        yield _gauges(
            f"django_mqlite_schedule_{name}_run_timestamp_seconds",
            text,
            {(schedule,): at.timestamp() for schedule, at in times.items() if at is not None},
            labels=["schedule"],
        )
    yield _gauges(
        "django_mqlite_schedule_paused",
        "1 if the schedule is paused.",
        {(row.name,): int(row.paused) for row in rows},
        labels=["schedule"],
    )


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=value)


def _gauges(
    name: str, text: str, values: Mapping[tuple[str, ...], float], *, labels: list[str]
) -> Metric:
    family = GaugeMetricFamily(name, text, labels=labels)
    for key, value in values.items():
        family.add_metric(list(key), value)
    return family


def _counter(
    name: str, text: str, values: Mapping[tuple[str, ...], float], *, labels: list[str]
) -> Metric:
    family = CounterMetricFamily(name, text, labels=labels)
    for key, value in values.items():
        family.add_metric(list(key), value)
    return family


def _histogram(name: str, text: str, totals: Mapping[str, DurationTotals]) -> Metric:
    family = HistogramMetricFamily(name, text, labels=["queue"])
    for queue, durations in totals.items():
        buckets = [
            (str(2**doublings / 1000), durations.below(doublings)) for doublings in DOUBLINGS
        ]
        family.add_metric([queue], [*buckets, ("+Inf", durations.count)], durations.sum_ms / 1000)
    return family


def render(using: str) -> bytes:
    """Return the metrics in Prometheus' text format, version 0.0.4."""
    registry = CollectorRegistry()
    registry.register(DatabaseCollector(using))
    return generate_latest(registry) + generate_latest(process_counts.registry)


@never_cache
@login_not_required
@require_safe
def metrics(request: HttpRequest) -> HttpResponse:
    """Return the metrics of the queues' database, for Prometheus.

    Requires an access key with the right to manage all queues, as `Authorization: Bearer SECRET`,
    or a user with the permission to view queues.
    """
    if not _may_read(request):
        text = "Send an access key that may manage all queues, as `Authorization: Bearer SECRET`."
        return HttpResponse(text, status=401, content_type="text/plain")
    return HttpResponse(render(queue_alias()), content_type=CONTENT_TYPE_PLAIN_0_0_4)


def _may_read(request: HttpRequest) -> bool:
    scheme, _, secret = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        key = AccessKey.objects.authenticate(secret.strip())
        return key is not None and key.allows("manage")
    user = getattr(request, "user", None)
    return user is not None and user.has_perm("django_mqlite.view_queue")


class ClosingCollector(DatabaseCollector):
    """The same metrics, for a server whose threads have no request that closes connections."""

    def collect(self) -> Iterator[Metric]:
        """Yield every metric, or none if the database cannot be read."""
        try:
            yield from list(super().collect())
        except Error as error:
            logger.warning("the metrics could not be read: %s", error)
        finally:
            connections.close_all()


def serve(using: str, *, host: str, port: int) -> WSGIServer:
    """Serve the metrics from a thread of this process, and return the server."""
    registry = CollectorRegistry()
    registry.register(ClosingCollector(using))
    server, _ = start_http_server(port, host, registry)
    return server
