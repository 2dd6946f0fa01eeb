"""Handlers for the shop's messages; `manage.py runworker` imports this module by its name."""

import logging
from datetime import datetime, timedelta

from django.db import transaction

from django_mqlite import Reject, handler, periodic
from django_mqlite.models import Message

from . import payment
from .models import Handling, Order

logger = logging.getLogger(__name__)


@handler("order-events")
def charge(message: Message) -> None:
    """Charge the customer's card for an order.

    The payment provider is called outside any transaction: a request to another server must not
    hold the database's write lock. Delivery is at least once, so the provider gets the message's
    idempotency key and charges a card once even if this handler runs twice.

    `CardDeclined` is not caught, because a decline can be temporary. The message is retried and
    becomes a dead letter, which can be redriven after the card was corrected.
    """
    order = _get_order(message)
    payment.charge(order, idempotency_key=message.idempotency_key)
    with transaction.atomic():
        Order.objects.filter(pk=order.pk).update(status=Order.Status.PAID)
        Handling.objects.create(
            order=order,
            worker=message.locked_by or "?",
            delivery_count=message.delivery_count,
        )


def _get_order(message: Message) -> Order:
    try:
        return Order.objects.get(pk=message.data["order"])
    except Order.DoesNotExist:
        raise Reject("UnknownOrder", f"Order {message.data['order']} does not exist.") from None


@periodic(name="nightly-report", cron="0 3 * * *", overlap="skip")
@handler("reports")
def report(message: Message) -> None:
    """Log how many orders of the last day were paid, each night at three.

    The day ends at the time of the tick and not now, so a late report covers the same day.
    """
    end = datetime.fromisoformat(message.properties["scheduled_for"])
    orders = Order.objects.filter(placed_at__range=(end - timedelta(days=1), end))
    paid = orders.filter(status=Order.Status.PAID).count()
    logger.info("%d of %d orders of the last day are paid", paid, orders.count())
