"""A client of the HTTP broker, for programs on other machines. It does not use Django.

    from django_mqlite.client import Client

    with Client("https://shop.example.com/mqlite", key="mqk_…") as client:
        client.send("orders", {"order": 17})
        client.work("emails", lambda message: send_email(**message.data))

It needs the extra [client].
"""

from ..exceptions import Reject, Retry
from .client import Client
from .errors import BrokerError, LeaseLost, OutcomeUnknown, Unreachable
from .messages import Outgoing, Received

__all__ = [
    "BrokerError",
    "Client",
    "LeaseLost",
    "OutcomeUnknown",
    "Outgoing",
    "Received",
    "Reject",
    "Retry",
    "Unreachable",
]
