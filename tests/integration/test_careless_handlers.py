"""What a handler leaves undone must not stop the worker, the file or its own message."""

import pytest
from django.db import transaction

from django_mqlite import enqueue, enqueue_many
from django_mqlite.handlers import Handler
from django_mqlite.worker.options import WorkerOptions
from django_mqlite.worker.process import run_worker_process
from django_mqlite.worker.shutdown import Shutdown
from tests.support.verbs import row_of

pytestmark = pytest.mark.django_db(transaction=True)


def work(function, *, queues=("jobs",), **options):
    worker = WorkerOptions(using="default", queues=queues, burst=True, threads=1, **options)
    handlers = {queue: Handler(queue=queue, function=function) for queue in queues}
    return run_worker_process(worker, handlers, Shutdown())


def test_a_settle_of_the_handlers_own_that_was_committed_stays(make_queue):
    make_queue("jobs")
    message = enqueue("jobs", None)

    def reject_in_a_transaction(message):
        with transaction.atomic():
            message.reject("Mine", "and nobody else's")

    work(reject_in_a_transaction)

    assert row_of(message)["dead_letter_reason"] == "Mine"


def test_without_an_order_of_their_own_the_queues_take_turns(make_queue):
    for name in ("a", "b"):
        make_queue(name)
        enqueue_many(name, range(4))
    seen = []

    work(lambda message: seen.append(message.queue), queues=("a", "b"), in_turn=True)

    assert sorted(seen[:4]) == ["a", "a", "b", "b"]


def test_in_a_given_order_the_first_queue_comes_first(make_queue):
    for name in ("b", "a"):
        make_queue(name)
        enqueue_many(name, range(2))
    seen = []

    work(lambda message: seen.append(message.queue), queues=("b", "a"))

    assert seen == ["b", "b", "a", "a"]
