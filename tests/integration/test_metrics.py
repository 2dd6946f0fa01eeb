"""21 Metrics for Prometheus: the view, a worker's port, and the dashboard."""

import json
import re
import subprocess
import sys
from contextlib import closing
from urllib.request import urlopen

import pytest
from django.contrib.auth.models import Permission, User
from django.core.management import CommandError, call_command
from django.db import connection
from django.test import RequestFactory
from prometheus_client.parser import text_string_to_metric_families

from django_mqlite import enqueue, handlers, recurring
from django_mqlite.handlers import Handler
from django_mqlite.http import metrics as module
from django_mqlite.http.metrics import metrics, render, serve
from django_mqlite.models import AccessKey, Message, Queue
from django_mqlite.types import WorkerRecord
from django_mqlite.verbs.tallies import Tally
from django_mqlite.verbs.workers import register, unregister
from tests.support.source import ROOT
from tests.support.verbs import dead_letter, deferred

pytestmark = pytest.mark.django_db

DASHBOARD = ROOT / "docs" / "grafana-dashboard.json"
LABELS = ("queue", "state", "outcome", "schedule", "file", "rpc", "le")
NAME = re.compile(r"\b(?:django_)?mqlite_\w+")


@pytest.fixture(autouse=True)
def own_counts(monkeypatch):
    monkeypatch.setattr(module, "process_counts", module.ProcessCounts())
    monkeypatch.setattr(recurring, "_declared", {})


def families():
    return {
        family.name: family for family in text_string_to_metric_families(render("default").decode())
    }


def samples():
    """Return the value of each sample by its name and the values of its labels."""
    return {
        (sample.name, *(sample.labels[label] for label in LABELS if label in sample.labels)): (
            sample.value
        )
        for family in families().values()
        for sample in family.samples
    }


def worker(name, clock, *deliveries, queues=("jobs",), slots=4):
    """Register a live worker that has counted these deliveries: state, wait and run in ms."""
    tally = Tally()
    for state, waited_ms, ran_ms in deliveries:
        tally.add("jobs", state, waited_ms=waited_ms, ran_ms=ran_ms, now=clock.now_ms())
    register(
        "default",
        WorkerRecord(
            worker=name,
            host="h",
            boot_id="b",
            pid_namespace=1,
            pid=1,
            process_started_at=0.0,
            queues=queues,
            slots=slots,
            in_flight=0,
            started_at=0,
        ),
        tally.recent(now=clock.now_ms()),
    )


def allowed(request):
    return metrics(request).status_code == 200


def get(**headers):
    return RequestFactory().get("/metrics", headers=headers)


# 21.1


@pytest.mark.rule("21.1")
def test_metrics_count_messages_by_state(queue, clock):
    enqueue("jobs", 1)
    enqueue("jobs", 2, delay=60)
    deferred("jobs")
    dead_letter("jobs")
    clock.advance(7.5)

    values = samples()

    assert {state: values["mqlite_queue_messages", "jobs", state] for state in STATES} == {
        "active": 1, "scheduled": 1, "deferred": 1, "dead_lettered": 1, "locked": 0, "completed": 0,
    }  # fmt: skip
    assert values["mqlite_queue_total", "jobs"] == 4
    assert values["mqlite_queue_oldest_message_age_ms", "jobs"] == 7_500
    assert values["django_mqlite_queue_due_seconds", "jobs"] == 7.5
    assert values["django_mqlite_queue_paused", "jobs"] == 0


STATES = ("active", "scheduled", "deferred", "dead_lettered", "locked", "completed")


@pytest.mark.rule("21.1")
def test_metrics_of_a_queue_without_work(queue):
    Queue.objects.get().pause()

    values = samples()

    assert values["django_mqlite_queue_due_seconds", "jobs"] == 0
    assert values["django_mqlite_queue_paused", "jobs"] == 1
    assert values["django_mqlite_wait_seconds_count", "jobs"] == 0


@pytest.mark.rule("21.1")
def test_metrics_describe_workers_schedules_and_the_file(queue, clock, settings):
    settings.MQLITE = {"SCHEDULES": {"s": {"every": 60, "queue": "jobs"}}}
    worker("a", clock)
    worker("b", clock, queues=(), slots=4)
    enqueue("jobs", 1)
    Message.objects.claim("jobs", worker="a")

    values = samples()

    assert values["django_mqlite_workers",] == 2
    assert values["django_mqlite_worker_slots",] == 4
    assert values["django_mqlite_worker_slots_busy",] == 1
    assert values["django_mqlite_queue_workers", "jobs"] == 1
    next_run = values["django_mqlite_schedule_next_run_timestamp_seconds", "s"]
    assert next_run == clock.now_ms() / 1000 + 60
    assert values["django_mqlite_schedule_paused", "s"] == 0
    assert values["django_mqlite_database_bytes", "main"] > 100_000
    assert values["django_mqlite_database_free_bytes",] >= 0


@pytest.mark.rule("21.1")
def test_error_of_a_schedule_leaves_the_other_metrics(queue, settings, caplog):
    settings.MQLITE = {"SCHEDULES": {"s": {"every": 60, "queue": "jobs"}}}
    recurring.periodic(name="s", every=60)(lambda message: None)

    assert ("mqlite_queue_total", "jobs") in samples()
    assert "the metrics have no schedules" in caplog.text


# 21.2


@pytest.mark.rule("21.2")
def test_deliveries_are_counted_by_outcome_with_their_times(queue, clock):
    worker("a", clock, ("completed", 0, 5), ("completed", 3, 70), ("active", 2_000, 20))
    worker("b", clock, ("dead_lettered", 90, 1), ("deferred", 0, 0), ("scheduled", 0, 300_000))

    values = samples()

    outcomes = {key[2]: value for key, value in values.items() if "deliveries_total" in key[0]}
    assert outcomes == {"completed": 2, "retried": 2, "dead_lettered": 1, "deferred": 1}
    assert values["mqlite_messages_completed_total", "jobs"] == 2
    waits = {
        key[2]: n for key, n in values.items() if key[0] == "django_mqlite_wait_seconds_bucket"
    }
    assert list(waits.values()) == [3, 4, 4, 4, 5, 5, 6, 6, 6, 6, 6, 6, 6]
    assert list(waits)[:3] == ["0.001", "0.004", "0.016"]
    assert values["django_mqlite_wait_seconds_sum", "jobs"] == 2.093
    assert values["django_mqlite_run_seconds_count", "jobs"] == 6
    assert values["django_mqlite_run_seconds_sum", "jobs"] == 300.096


@pytest.mark.rule("21.2")
def test_totals_never_decrease(queue, clock):
    worker("a", clock, ("completed", 1, 1))
    clock.advance(86_400 * 365)
    unregister("default", "a")
    worker("a", clock, ("completed", 1, 1), ("active", 1, 1))
    clock.advance(3_600)

    values = samples()

    assert values["django_mqlite_deliveries_total", "jobs", "completed"] == 2
    assert values["django_mqlite_run_seconds_count", "jobs"] == 3


@pytest.mark.rule("21.2")
def test_totals_of_a_deleted_queue_are_forgotten(queue, clock):
    worker("a", clock, ("completed", 1, 1))
    Queue.objects.delete_queue("jobs")
    unregister("default", "a")
    Queue.objects.create_queue("jobs")

    assert samples()["django_mqlite_deliveries_total", "jobs", "completed"] == 0


@pytest.mark.rule("21.2")
def test_damaged_counts_are_left_out(queue, clock):
    worker("a", clock, ("completed", 1, 1))
    with connection.cursor() as cursor:
        for key, value in (
            ("deliveries:x", "{"),
            ("deliveries:y", '{"outcomes": 1}'),
            ("settled", "[1]"),
        ):
            cursor.execute(
                "INSERT INTO mqlite_meta (key, value, updated_at) VALUES (%s, %s, 0)", [key, value]
            )

    assert samples()["django_mqlite_deliveries_total", "jobs", "completed"] == 1


@pytest.mark.rule("21.2")
def test_broker_counts_its_rpcs_and_the_completions_of_its_clients(
    queue, clock, django_capture_on_commit_callbacks
):
    counts = module.process_counts
    counts.count_completions()
    counts.count_completions()
    enqueue("jobs", 1)
    (message,) = Message.objects.claim("jobs")
    counts.observe_rpc("Send", 0.002)

    with django_capture_on_commit_callbacks(execute=True):
        message.complete()

    values = samples()
    assert values["mqlite_messages_completed_total", "jobs"] == 1
    assert values["mqlite_rpc_duration_seconds_bucket", "Send", "0.0025"] == 1
    assert values["mqlite_rpc_duration_seconds_count", "Send"] == 1


# 21.3


@pytest.mark.rule("21.3")
def test_view_returns_prometheus_text(queue):
    _, secret = AccessKey.objects.create_key("prometheus", manage=["*"])

    response = metrics(get(authorization=f"Bearer {secret}"))

    assert response["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert b'mqlite_queue_total{queue="jobs"} 0.0' in response.content
    assert "no-store" in response["Cache-Control"]


@pytest.mark.rule("21.3")
def test_view_requires_a_key_that_may_manage_all_queues(queue):
    _, some = AccessKey.objects.create_key("some", manage=["jobs"], send=["*"], listen=["*"])

    assert not allowed(get())
    assert not allowed(get(authorization=f"Bearer {some}"))
    assert not allowed(get(authorization="Bearer mqk_" + "0" * 64))
    assert not allowed(get(authorization="Basic abc"))


@pytest.mark.rule("21.3")
def test_view_accepts_a_user_who_may_view_queues(queue):
    user = User.objects.create_user("viewer", is_staff=True)
    request = get()
    request.user = user
    assert not allowed(request)

    user.user_permissions.add(Permission.objects.get(codename="view_queue"))
    request.user = User.objects.get(pk=user.pk)

    assert allowed(request)
    assert metrics(RequestFactory().post("/metrics")).status_code == 405


@pytest.mark.rule("21.3")
@pytest.mark.django_db(transaction=True)
def test_worker_serves_metrics_on_a_port(make_queue, monkeypatch):
    make_queue("jobs")
    server = serve("default", host="127.0.0.1", port=0)
    try:
        address = f"http://127.0.0.1:{server.server_port}/metrics"
        with closing(urlopen(address, timeout=60)) as response:
            text = response.read().decode()
    finally:
        server.shutdown()
        server.server_close()

    assert 'mqlite_queue_total{queue="jobs"} 0.0' in text


@pytest.mark.rule("21.3")
@pytest.mark.django_db(transaction=True)
def test_command_serves_metrics_and_refuses_a_taken_port(make_queue, monkeypatch):
    served = []
    monkeypatch.setattr(module, "serve", lambda using, **place: served.append((using, place)))
    make_queue("jobs")
    handler = Handler(queue="jobs", function=lambda message: None)
    monkeypatch.setattr(handlers, "_handlers", {"jobs": handler})

    call_command("runworker", "--burst", "--metrics-port=9108", "--skip-checks")
    assert served == [("default", {"host": "127.0.0.1", "port": 9108})]

    monkeypatch.undo()
    monkeypatch.setattr(handlers, "_handlers", {"jobs": handler})
    server = serve("default", host="127.0.0.1", port=0)
    try:
        with pytest.raises(CommandError, match=r"Cannot serve metrics on 127\.0\.0\.1"):
            call_command("runworker", "--burst", f"--metrics-port={server.server_port}")
    finally:
        server.shutdown()
        server.server_close()


# 21.4


@pytest.mark.rule("21.4")
def test_every_metric_of_the_dashboard_and_the_page_exists(queue, clock, settings):
    settings.MQLITE = {"SCHEDULES": {"s": {"every": 60, "queue": "jobs"}}}
    worker("a", clock, ("completed", 1, 1))
    module.process_counts.observe_rpc("Send", 0.1)
    dashboard = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    page = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    expressions = [
        target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())
    ]
    variable = dashboard["templating"]["list"][1]["query"]["query"]

    exist = {key[0] for key in samples()}
    documented = set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE))

    assert len(expressions) > 15
    assert {name for text in [*expressions, variable, page] for name in NAME.findall(text)} <= (
        exist | documented
    )
    assert {name for text in [*expressions, variable] for name in NAME.findall(text)} <= exist
    assert documented == {
        f"{name}_total" if family.type == "counter" else name
        for name, family in families().items()
        if not name.endswith("_created")
    }


@pytest.mark.rule("21.4")
def test_nothing_imports_prometheus_client_unless_metrics_are_used():
    code = (
        "import os, sys, django; os.environ['DJANGO_SETTINGS_MODULE'] = 'tests.settings';"
        "django.setup(); from django_mqlite.management.cli import SUBCOMMANDS;"
        "from django_mqlite.management.commands import runworker;"
        "sys.exit('prometheus_client' in sys.modules)"
    )

    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0
