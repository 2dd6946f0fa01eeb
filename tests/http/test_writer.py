"""Group commit: the writes of several requests in one transaction."""

import threading
from concurrent.futures import Future
from functools import partial

import pytest
from django.db import connection, connections, transaction

from django_mqlite import QueueNotFound, TransactionRefused
from django_mqlite.http.writer import Job, Writer
from django_mqlite.models import Message
from tests.support.waiting import PATIENCE

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.rule("19.5")]


class Group:
    """A writer whose first commit is held up, so that jobs gather behind it."""

    def __init__(self):
        self._started, self._held = threading.Event(), threading.Event()
        self.commits = []
        self._writer = Writer("default", self._deliver)
        self._jobs = []
        self._submit(self._hold)
        assert self._started.wait(PATIENCE)

    def _hold(self):
        self._started.set()
        assert self._held.wait(PATIENCE)

    def add(self, call):
        self._submit(call)

    def _submit(self, call):
        job = Job(call, Future())
        self._jobs.append(job)
        self._writer.submit(job)
        return job

    def _deliver(self, jobs):
        self.commits.append(len(jobs))

    def run(self):
        """Run what was added; return the results and errors."""
        self._held.set()
        self._writer.close()
        return [job.error or job.result for job in self._jobs[1:]]


@pytest.fixture
def group(queue):
    return Group()


def enqueue(data, queue="jobs"):
    return Message.objects.enqueue(queue, data).pk


def stored():
    return [message.data for message in Message.objects.order_by("pk")]


def test_jobs_that_gather_share_a_commit(group):
    for number in range(5):
        group.add(partial(enqueue, number))

    ids = group.run()

    assert ids == sorted(ids)
    assert stored() == [0, 1, 2, 3, 4]
    assert group.commits == [1, 5]


def test_failing_job_undoes_only_itself(group):
    def two_writes():
        enqueue("undone")
        raise ValueError("wrong")

    group.add(partial(enqueue, 1))
    group.add(two_writes)
    group.add(partial(enqueue, 2, queue="no-such"))
    group.add(partial(enqueue, 3))

    results = group.run()

    assert isinstance(results[1], ValueError)
    assert isinstance(results[2], QueueNotFound)
    assert stored() == [1, 3]


def test_claims_of_a_group_are_leases_of_different_messages(group):
    for number in range(3):
        enqueue(number)
    for _ in range(4):
        group.add(partial(Message.objects.claim, "jobs"))

    results = group.run()

    assert [[message.data for message in messages] for messages in results] == [[0], [1], [2], []]
    assert Message.objects.filter(state="locked").count() == 3


def test_claim_in_a_transaction_of_the_project_is_still_refused(queue):
    with transaction.atomic(), pytest.raises(TransactionRefused):
        Message.objects.claim("jobs")


def test_job_that_ruins_the_transaction_is_repeated_alone(group):
    def ruin():
        with connections["default"].cursor() as cursor:
            cursor.execute("ROLLBACK")
        raise RuntimeError("ruined")

    group.add(partial(enqueue, 1))
    group.add(ruin)
    group.add(partial(enqueue, 2))

    results = group.run()

    assert isinstance(results[1], Exception)
    assert stored() == [1, 2]


def test_canceled_job_is_not_run(group):
    job = group._submit(partial(enqueue, 1))
    job.canceled = True
    group.add(partial(enqueue, 2))

    group.run()

    assert stored() == [2]


def test_closing_runs_what_was_submitted(group):
    for number in range(300):
        group.add(partial(enqueue, number))

    group.run()

    assert len(stored()) == 300
    assert not connection.in_atomic_block
