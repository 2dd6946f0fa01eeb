"""A substitute for a payment provider, which a real shop calls over HTTP."""

from .models import Order, Payment


class CardDeclined(Exception):
    """The bank declined the card."""


def charge(order: Order, *, idempotency_key: str) -> Payment:
    """Charge the order's card, or return the existing payment with this key.

    The table stands for the provider's own records: like a real provider, it charges a card only
    once for one idempotency key.
    """
    if order.card == Order.Card.DECLINED:
        raise CardDeclined(f"The card for order {order.pk} was declined.")
    payment, _ = Payment.objects.get_or_create(
        idempotency_key=idempotency_key, defaults={"order": order}
    )
    return payment
