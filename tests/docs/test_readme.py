"""The code of the README does what the README says."""

from datetime import timedelta
from types import SimpleNamespace

import pytest
from django.db import transaction
from django.test import override_settings

from django_mqlite import Reject
from django_mqlite.conf import get_settings
from django_mqlite.handlers import _handlers
from django_mqlite.models import Message, Queue
from tests.support.pages import blocks_of
from tests.support.source import ROOT

BLOCKS = [block.text for block in blocks_of(ROOT / "README.md") if block.language == "python"]


class TemporaryFailure(Exception):
    """What a reader's mail server may say."""


def run(containing: str, **names: object) -> dict:
    """Run the one block that has this text, with what the reader has around it."""
    (block,) = [each for each in BLOCKS if containing in each]
    exec(block, names)
    return names


@pytest.fixture
def queues(db, clock):
    """Those that the README declares."""
    declared = run("MQLITE =", BASE_DIR=ROOT)["MQLITE"]
    with override_settings(MQLITE=declared):
        Queue.objects.sync()
        yield get_settings().queues


def test_the_settings_declare_the_queues_that_the_rest_is_about(queues):
    assert {"emails", "order-events", "stock"} <= set(queues)
    assert queues["emails"].lock_duration_ms == 60_000
    assert queues["order-events"].ordering_mode == "group_fifo"


def test_the_view_enqueues_with_the_order(queues):
    order = SimpleNamespace(pk=17, customer_id=7)
    orders = SimpleNamespace(objects=SimpleNamespace(create=lambda *fields: order))

    run('enqueue("order-events"', transaction=transaction, Order=orders)

    message = Message.objects.get()
    assert (message.data, message.group_id) == ({"order": 17}, "customer-7")


def test_the_handlers_do_what_their_comments_say(queues, monkeypatch):
    monkeypatch.setattr("django_mqlite.handlers._handlers", registered := dict(_handlers))
    charged = []
    run('@handler("stock"', charge=lambda order, idempotency_key: charged.append(order))
    message = Message.objects.enqueue("order-events", {"order": 17}, group_id="customer-7")

    registered["order-events"].function(message)
    with pytest.raises(Reject, match="UnknownArticle"):
        registered["stock"].function(message)

    assert charged == [17]
    assert registered["stock"].atomic


def test_the_loop_completes_what_was_sent_and_gives_back_what_was_not(queues):
    first, second = (Message.objects.enqueue("emails", {"to": to}) for to in (7, 8))

    def send(data):
        if data == {"to": 8}:
            raise TemporaryFailure("the server is busy")

    run("Message.objects.claim", send=send, TemporaryFailure=TemporaryFailure, timedelta=timedelta)

    assert not Message.objects.filter(pk=first.pk).exists()
    left = Message.objects.get(pk=second.pk)
    assert left.state == "scheduled"
    assert left.visible_at - left.enqueued_at == timedelta(seconds=30)
