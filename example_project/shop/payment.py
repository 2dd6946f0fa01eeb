"""The payment service, as far as an example has one."""

from django_mqlite.models import Message

from .models import Order


class CardDeclined(Exception):
    """The customer cannot pay; carries what was written before that was known."""

    def __init__(self, order: Order, message: Message) -> None:
        self.order = order
        self.message = message
        super().__init__("the card was declined")


def charge(card: str, order: Order, message: Message) -> None:
    if card == "declined":
        raise CardDeclined(order, message)
