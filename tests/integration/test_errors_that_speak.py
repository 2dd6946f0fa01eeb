"""An error's texts are code of the user's: nobody waits for the write lock while they are asked."""

import threading

import pytest
from django.db import connection

from django_mqlite import Reject
from django_mqlite.handlers import Handler
from django_mqlite.models import DeadLetter, Message
from django_mqlite.worker.options import WorkerOptions
from django_mqlite.worker.process import run_worker_process
from django_mqlite.worker.shutdown import Shutdown
from tests.support.verbs import enqueue_and_claim

pytestmark = pytest.mark.django_db(transaction=True)


class Speaking(Exception):
    """Notes where it was asked, and whether that was in a transaction."""

    def __init__(self):
        self.asked = []

    def __str__(self):
        self.asked.append((threading.current_thread().name, connection.in_atomic_block))
        return "it spoke"


@pytest.mark.parametrize(
    "settle",
    [
        lambda message, said: message.abandon(error=said),
        lambda message, said: message.reject("Broken", said),
        lambda message, said: message.reject(said),
        lambda message, said: message.reject("Broken", error=said),
    ],
    ids=["abandon", "description", "reason", "reject"],
)
def test_no_verb_asks_for_a_text_in_its_transaction(queue, settle):
    said = Speaking()

    settle(enqueue_and_claim("jobs"), said)

    assert {inside for _, inside in said.asked} == {False}


@pytest.mark.parametrize(
    "wrap", [lambda said: said, lambda said: Reject("Broken", said)], ids=["error", "reject"]
)
def test_worker_reads_error_details_outside_its_transactions(queue, wrap):
    said = Speaking()

    def fail(message):
        raise wrap(said)

    Message.objects.enqueue("jobs", None)
    options = WorkerOptions(using="default", queues=("jobs",), burst=True, threads=1)
    run_worker_process(options, {"jobs": Handler(queue="jobs", function=fail)}, Shutdown())

    assert {inside for _, inside in said.asked} == {False}


def test_a_text_that_leaves_ends_neither_the_thread_nor_the_delivery(queue):
    class Leaving(Exception):
        def __str__(self):
            raise SystemExit(3)

    def fail(message):
        raise Leaving

    for _ in range(2):
        Message.objects.enqueue("jobs", None, max_delivery_count=1)
    options = WorkerOptions(using="default", queues=("jobs",), burst=True, threads=1)

    assert (
        run_worker_process(options, {"jobs": Handler(queue="jobs", function=fail)}, Shutdown()).code
        == 0
    )

    assert DeadLetter.objects.count() == 2


def test_a_text_that_cannot_be_had_settles_all_the_same(queue):
    class Mute:
        def __str__(self):
            raise RuntimeError("no")

    enqueue_and_claim("jobs").reject("Broken", Mute())

    assert "RuntimeError" in DeadLetter.objects.get().dead_letter_description
