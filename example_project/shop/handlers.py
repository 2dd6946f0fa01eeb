"""What happens after an order was placed. `manage.py runworker` finds this module by its name."""

from django.db import transaction

from django_mqlite import Reject, handler
from django_mqlite.models import Message

from .models import Handling, Order


@handler("order-events")
def reserve(message: Message) -> None:
    """Take the ordered article from the stock.

    Delivery is at least once: a worker that dies between this commit and the message's completion
    leaves a message that is delivered again. So the effect asks first whether it is there already.
    OutOfStock is not caught: the message comes back after a while, and in the end lies among the
    dead letters until somebody has filled the stock and redrives it.
    """
    with transaction.atomic():
        order = _ordered(message)
        if order.status == Order.Status.PLACED:
            order.article.take_one()
            order.status = Order.Status.RESERVED
            order.save(update_fields=["status"])
        Handling.objects.create(
            order=order,
            worker=message.locked_by or "?",
            delivery_count=message.delivery_count,
        )


def _ordered(message: Message) -> Order:
    try:
        return Order.objects.select_related("article").get(pk=message.data["order"])
    except Order.DoesNotExist:
        raise Reject("UnknownOrder", f"there is no order {message.data['order']}") from None
