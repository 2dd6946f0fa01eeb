"""What a handler leaves undone must not stop the worker, the file or its own message."""

import pytest
from asgiref.sync import sync_to_async
from django.db import connection, transaction

from django_mqlite import enqueue, enqueue_many
from django_mqlite.handlers import Handler
from django_mqlite.models import DeadLetter, Message
from django_mqlite.worker.child import run_child
from django_mqlite.worker.options import WorkerOptions
from django_mqlite.worker.stop import Stop
from tests.support.verbs import row_of, state_of

pytestmark = pytest.mark.django_db(transaction=True)


def work(function, *, queues=("jobs",), **options):
    worker = WorkerOptions(using="default", queues=queues, burst=True, threads=1, **options)
    handlers = {queue: Handler(queue=queue, function=function) for queue in queues}
    return run_child(worker, handlers, Stop())


def begin():
    with connection.cursor() as cursor:
        cursor.execute("BEGIN IMMEDIATE")


@pytest.mark.parametrize(
    "begin_one",
    [
        begin,
        lambda: transaction.atomic().__enter__(),
        lambda: transaction.set_autocommit(False),
    ],
    ids=["BEGIN", "atomic", "autocommit"],
)
def test_a_handler_that_leaves_a_transaction_open_has_failed_for_what_it_wrote_is_gone(
    make_queue, begin_one
):
    make_queue("jobs", max_delivery_count=1)
    left_open = enqueue("jobs", None)

    def leave_open(message):
        begin_one()
        Message.objects.filter(pk=message.pk).update(subject="never committed")

    assert work(leave_open).code == 0

    letter = DeadLetter.objects.get(pk=left_open.pk)
    assert letter.subject is None
    assert letter.errors[-1]["class"] == "django_mqlite.exceptions.TransactionLeftOpen"


def test_a_coroutine_that_leaves_a_transaction_open_holds_up_nobody(make_queue):
    make_queue("jobs", max_delivery_count=1)
    left_open = enqueue("jobs", None)

    async def leave_open(message):
        await sync_to_async(begin)()

    assert work(leave_open).code == 0

    assert state_of(left_open) == "gone"


def test_a_settle_that_the_handlers_transaction_rolled_back_is_settled_by_how_it_ended(make_queue):
    make_queue("jobs", max_delivery_count=1)
    message = enqueue("jobs", None)

    def complete_and_roll_back(message):
        with transaction.atomic():
            message.complete()
            raise ValueError("after the completion")

    work(complete_and_roll_back)

    row = row_of(message)
    assert (row["state"], row["dead_letter_reason"]) == (
        "dead_lettered",
        "MaxDeliveryCountExceeded",
    )
    assert [error["message"] for error in row["errors"]] == ["after the completion"]


def test_a_settle_of_the_handlers_own_that_was_committed_stays(make_queue):
    make_queue("jobs")
    message = enqueue("jobs", None)

    def reject_in_a_transaction(message):
        with transaction.atomic():
            message.reject("Mine", "and nobody else's")

    work(reject_in_a_transaction)

    assert row_of(message)["dead_letter_reason"] == "Mine"


def test_a_handler_that_stops_the_event_loop_ends_the_worker_with_a_failure(make_queue):
    make_queue("jobs")
    enqueue("jobs", None)

    async def stop_the_loop(message):
        import asyncio  # noqa: PLC0415 - as a careless handler would

        asyncio.get_running_loop().stop()
        await asyncio.sleep(60)

    ended = work(stop_the_loop, shutdown_timeout=0.1)

    assert (ended.code, ended.running) == (1, 1)


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
