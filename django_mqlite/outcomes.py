"""The outcome of a delivery, derived from what its handler returned or raised."""

from .exceptions import Reject, Retry, text_of
from .guard import call_guarded
from .timing import milliseconds
from .types import Abandonment, Completion, Outcome, Rejection


def outcome_of(error: BaseException | None) -> Outcome:
    """Return the verb that settles a message whose handler returned (None) or raised `error`.

    The attributes of an error can run foreign code: call this where the handler ran. Never raises.
    """
    return call_guarded(lambda: _outcome_of(error), lambda broken: Abandonment())


def _outcome_of(error: BaseException | None) -> Outcome:
    match error:
        case None:
            return Completion()
        case Reject():
            return _rejection(error)
        case Retry():
            delay_ms = _requested_delay(error)
            return Abandonment(delay_ms=delay_ms, counts=_counts(error) or not delay_ms)
        case _:
            return Abandonment()


def _rejection(error: Reject) -> Rejection:
    """Return the reason and the description; a subclass may set neither."""
    return Rejection(
        reason=call_guarded(lambda: error.reason, lambda broken: type(error).__name__),
        description=call_guarded(lambda: error.description, lambda broken: text_of(error)),
    )


def _requested_delay(error: Retry) -> int | None:
    """Return the requested delay, or None (the queue's backoff) if it is not a valid duration."""
    return call_guarded(lambda: milliseconds(error.delay, "Retry(delay=…)"), lambda broken: None)


def _counts(error: Retry) -> bool:
    """Return whether the delivery counts. A subclass may not have set the attribute."""
    return call_guarded(lambda: error.counts is not False, lambda broken: True)
