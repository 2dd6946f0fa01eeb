"""How a delivery ends, decided purely."""

from ..durations import milliseconds
from ..exceptions import Reject, Retry
from ..types import Abandonment, Completion, Outcome, Rejection


def outcome_of(error: BaseException | None) -> Outcome:
    """Which verb settles a message whose handler returned (None) or raised `error`."""
    match error:
        case None:
            return Completion()
        case Reject():
            return Rejection(reason=error.reason, description=error.description)
        case Retry():
            return Abandonment(delay_ms=_asked_delay(error))
        case _:
            return Abandonment()


def _asked_delay(retry: Retry) -> int | None:
    """What the handler asked for; its queue's backoff where that is no length of time."""
    try:
        return milliseconds(retry.delay, "Retry(delay=…)")
    except (TypeError, ValueError):
        return None
