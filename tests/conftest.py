"""Fixtures and settings of every test."""

import sqlite3
from collections.abc import Callable

import pytest
from hypothesis import settings

pytest_plugins = ["tests.support.workers"]

# The same examples every time, so that a change fails by what it does and not by chance; `make
# model` looks for new ones. Time in a test is the database's, not the example's: a deadline would
# only make tests flaky.
settings.register_profile("default", deadline=None, derandomize=True)
settings.register_profile("thorough", deadline=None, max_examples=2_000, stateful_step_count=100)
settings.load_profile("default")


def pytest_report_header() -> str:
    """Return the SQLite under test, because the package depends on its version."""
    return f"SQLite: {sqlite3.sqlite_version} ({sqlite3.__name__})"


@pytest.fixture
def clock(mqlite_clock):
    """The clock in use, which stands still at the beginning of 2026."""
    return mqlite_clock


@pytest.fixture
def make_queue(db) -> Callable:
    """Create a queue with the options of MQLITE['QUEUES']."""
    from django_mqlite.models import Queue  # noqa: PLC0415 - nothing before the apps are ready

    return Queue.objects.create_queue


@pytest.fixture
def queue(clock, make_queue):
    """A standard queue: leases of 30 s, 10 deliveries."""
    return make_queue("jobs")


@pytest.fixture
def group_queue(clock, make_queue):
    return make_queue("groups", ordering_mode="group_fifo")


@pytest.fixture
def strict_queue(clock, make_queue):
    return make_queue("strict", ordering_mode="strict_fifo")
