"""How a delivery ends, decided purely."""

from ..durations import milliseconds
from ..exceptions import Reject, Retry
from ..failures import text_of
from ..guard import ask
from ..types import Abandonment, Completion, Outcome, Rejection


def outcome_of(error: BaseException | None) -> Outcome:
    """Return the verb that settles a message whose handler returned (None) or raised `error`.

    The attributes of an error are foreign code: call this where the handler ran. Never raises.
    """
    return ask(lambda: _outcome_of(error), lambda broken: Abandonment())


def _outcome_of(error: BaseException | None) -> Outcome:
    match error:
        case None:
            return Completion()
        case Reject():
            return _rejection(error)
        case Retry():
            return Abandonment(delay_ms=_asked_delay(error))
        case _:
            return Abandonment()


def _rejection(error: Reject) -> Rejection:
    """The reason of a subclass that sets none is its name."""
    return Rejection(
        reason=ask(lambda: error.reason, lambda broken: type(error).__name__),
        description=ask(lambda: error.description, lambda broken: text_of(error)),
    )


def _asked_delay(error: Retry) -> int | None:
    """What the handler asked for; its queue's backoff where that is no length of time."""
    return ask(lambda: milliseconds(error.delay, "Retry(delay=…)"), lambda broken: None)
