"""Every subcommand copes with a hundred thousand messages, and asks no more of the database."""

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from django_mqlite.models import DeadLetter, Message
from tests.support.bulk import fill

from .calls import answer, mqlite

MANY = 100_000
OF_A_STATE = MANY // 6


@pytest.fixture
def many(queue, clock):
    fill("jobs", MANY, now=clock.ms)


def first(state):
    return Message.objects.filter(queue="jobs", state=state).order_by("pk").first().pk


def test_looking(many, clock):
    (stats,) = answer("stats")["queues"]
    assert sum(stats["counts"].values()) == MANY
    assert stats["counts"]["locked"] == OF_A_STATE

    for arguments in (
        [],
        ["jobs"],
        ["jobs", "--state=completed"],
        ["--state=dead_lettered"],
        ["--group=group-5"],
        ["--search=order.4"],
        ["--search=message-777"],
    ):
        with CaptureQueriesContext(connection) as captured:
            found = answer("list", *arguments, "--limit", 20)
        assert 1 <= len(found["messages"]) <= 20
        assert len(captured) <= 10

    for state, code in (
        ("active", "no_handler"),
        ("scheduled", "not_due"),
        ("locked", "leased"),
        ("deferred", "deferred"),
        ("dead_lettered", "dead_lettered"),
        ("completed", "completed"),
    ):
        with CaptureQueriesContext(connection) as captured:
            assert answer("why", first(state))["code"] in (code, "backing_off")
        assert len(captured) <= 6
        assert f"#{first(state)}" in mqlite("show", first(state))

    assert len(answer("peek", "jobs", "--limit", 5)["messages"]) == 5
    assert len(answer("peek", "jobs", "--dead", "--limit", 5)["messages"]) == 5
    assert answer("doctor")["healthy"] is True
    assert answer("health")["healthy"] is True


def test_walking_through_all_pages(many):
    ids, after = [], None
    while True:
        page = Message.objects.find(queue="jobs", limit=7_000, after=after)
        ids += page.ids
        after = page.next
        if after is None:
            break

    assert len(ids) == len(set(ids)) == MANY


def test_steering(many):
    lost = DeadLetter.objects.filter(dead_letter_reason="Lost").count()
    assert 0 < lost < OF_A_STATE

    assert answer("redrive", "jobs", "--reason", "Lost")["redriven"] == lost
    assert answer("purge", "jobs", "--limit", 10, "--yes")["purged"] == 10
    assert answer("purge", "jobs", "--all", "--yes")["purged"] == OF_A_STATE + 1 - lost - 10
    assert DeadLetter.objects.count() == 0
    assert answer("release", first("locked"), "--yes")["refused"] == []
    assert answer("run-now", first("scheduled"))["refused"] == []
    assert answer("pause", "jobs")["queues"][0]["changed"] is True
    assert answer("why", first("active"))["code"] == "paused"
    assert answer("resume", "jobs")["queues"][0]["changed"] is True
    assert answer("enqueue", "jobs", "1")["id"] > MANY
