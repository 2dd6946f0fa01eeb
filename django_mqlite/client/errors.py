"""The errors of the client, one for each reaction."""

from ..exceptions import Restorable


class BrokerError(Restorable):
    """The broker refused the request. `code` is stable, for example "not_found"."""

    def __init__(self, status: int, code: str, message: str) -> None:
        self.status = status
        self.code = code
        super().__init__(f"{message or 'The broker refused the request.'} ({code}, {status})")


class LeaseLost(BrokerError):
    """The lease has ended: another worker has the message, or will have it. Do not retry."""


class Unreachable(Restorable):
    """The broker did not answer in time. Repeating the call is safe."""


class OutcomeUnknown(Restorable):
    """The connection broke while messages were sent: they may have been stored or not.

    Send them with a `message_id` to a queue with a deduplication window, so that they can be sent
    again safely.
    """
