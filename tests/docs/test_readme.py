"""The code of the README does what the README says."""

import sys
from datetime import timedelta
from types import ModuleType, SimpleNamespace

import pytest
from django.core import mail
from django.test import override_settings

from django_mqlite import Reject
from django_mqlite.conf import get_settings
from django_mqlite.handlers import _handlers
from django_mqlite.models import Message, Queue
from tests.support.pages import blocks_of
from tests.support.source import ROOT

BLOCKS = [block.text for block in blocks_of(ROOT / "README.md") if block.language == "python"]


def run(containing: str, **names: object) -> dict:
    """Run the block of the README that contains this text; return its names."""
    (block,) = [text for text in BLOCKS if containing in text]
    exec(block, names)
    return names


@pytest.fixture
def queues(db, clock):
    """Create the queues that the README declares."""
    declared = run("MQLITE =", BASE_DIR=ROOT)["MQLITE"]
    with override_settings(MQLITE=declared):
        Queue.objects.sync()
        yield get_settings().queues


class Orders:
    """Stand for the manager of the reader's model Order."""

    def __init__(self) -> None:
        self.rows = {}

    def create(self, *, email):
        order = SimpleNamespace(pk=17, email=email)
        self.rows[order.pk] = order
        return order

    def filter(self, *, pk):
        return SimpleNamespace(first=lambda: self.rows.get(pk))


@pytest.fixture
def orders(monkeypatch):
    """Provide the module shop.models that the README imports."""
    models = ModuleType("shop.models")
    models.Order = SimpleNamespace(objects=Orders())
    monkeypatch.setitem(sys.modules, "shop", ModuleType("shop"))
    monkeypatch.setitem(sys.modules, "shop.models", models)
    return models.Order.objects


def test_settings_declare_the_queues_of_the_examples(queues):
    assert {"confirmations", "imports"} <= set(queues)
    assert queues["confirmations"].max_delivery_count == 5


def test_view_enqueues_the_message_with_the_order(queues, orders):
    view = run("def place_order")["place_order"]

    view(SimpleNamespace(POST={"email": "ada@example.com"}))

    assert Message.objects.get().data == {"order": 17}
    assert orders.rows[17].email == "ada@example.com"


def test_handler_confirms_orders_and_rejects_unknown_ones(queues, orders, monkeypatch, settings):
    # Django 6.1 warns where a project that sends mail has no MAILERS; older ones ignore it.
    settings.MAILERS = {"default": {"BACKEND": "django.core.mail.backends.locmem.EmailBackend"}}
    monkeypatch.setattr("django_mqlite.handlers._handlers", registered := dict(_handlers))
    run('@handler("confirmations")')
    message = Message.objects.enqueue("confirmations", {"order": 17})

    with pytest.raises(Reject, match="UnknownOrder"):
        registered["confirmations"].function(message)
    orders.create(email="ada@example.com")
    registered["confirmations"].function(message)

    assert [sent.to for sent in mail.outbox] == [["ada@example.com"]]


def test_loop_completes_successes_and_abandons_failures(queues, monkeypatch):
    first, second = (
        Message.objects.enqueue("imports", {"report": report}) for report in ("good", "bad")
    )

    def mail_admins(subject, report):
        if report == "bad":
            raise OSError("the mail server is busy")

    monkeypatch.setattr("django.core.mail.mail_admins", mail_admins)
    run("Message.objects.claim")

    assert not Message.objects.filter(pk=first.pk).exists()
    abandoned = Message.objects.get(pk=second.pk)
    assert abandoned.state == "scheduled"
    assert abandoned.visible_at - abandoned.enqueued_at == timedelta(seconds=30)
