"""mqlite with a hundred thousand messages."""

from django.db import connection
from django.test.utils import CaptureQueriesContext

from django_mqlite.models import Message
from tests.support.bulk import fill

from .calls import answer, mqlite

COUNT = 100_000
CODES = {
    "active": "no_handler",
    "scheduled": "backing_off",
    "locked": "leased",
    "deferred": "deferred",
    "dead_lettered": "dead_lettered",
    "completed": "completed",
}
LISTS = (
    [], ["jobs"], ["jobs", "--state=completed"], ["--state=dead_lettered"], ["--group=group-5"],
    ["--search=order.4"], ["--search=message-777"],
)  # fmt: skip


def test_inspection_of_a_large_queue_sends_few_queries(queue, clock):
    fill("jobs", COUNT, now=clock.ms)

    (stats,) = answer("stats")["queues"]
    assert sum(stats["counts"].values()) == COUNT
    assert stats["counts"]["locked"] == COUNT // 6

    for arguments in LISTS:
        with CaptureQueriesContext(connection) as queries:
            page = answer("list", *arguments, "--limit", 20)
        assert 1 <= len(page["messages"]) <= 20
        assert len(queries) <= 10

    for state, code in CODES.items():
        id = Message.objects.filter(state=state).order_by("pk").first().pk
        with CaptureQueriesContext(connection) as queries:
            assert answer("why", id)["code"] == code
        assert len(queries) <= 6
        assert f"#{id}" in mqlite("show", id)

    for options in ([], ["--dead"]):
        assert len(answer("peek", "jobs", *options, "--limit", 5)["messages"]) == 5
    assert answer("doctor")["healthy"] is True
    assert answer("health")["healthy"] is True
