"""The outcome of a delivery, derived from what its handler returned or raised."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import random
from typing import Any

from .exceptions import MqliteError, Reject, Retry, text_of
from .guard import call_guarded, get_logger, safe_repr
from .timing import Duration, backoff_ms, milliseconds
from .types import Abandonment, Completion, Outcome, Rejection

logger = get_logger("django_mqlite")

Backoff = Duration | Callable[[int], Duration]
"""The delay after the first failure, or a function that returns the delay after each attempt."""

LONGEST_BACKOFF_MS = 3_600_000

NOT_RETRIED = "NotRetried"
"""The reason of a dead letter whose exception is not worth a retry."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """The rules for failed deliveries of a handler or a task; the default is the queue's backoff.

    `retry_on` None means every exception. `give_up_on` goes first.
    """

    retry_on: tuple[type[BaseException], ...] | None = None
    give_up_on: tuple[type[BaseException], ...] = ()
    backoff: Backoff | None = None

    def gives_up(self, error: BaseException) -> bool:
        """Return True if the exception is not worth a retry.

        The package's own errors, such as a task that this code does not have, are retried unless
        `give_up_on` names them.
        """
        kind = type(error)
        if issubclass(kind, self.give_up_on):
            return True
        return self.retry_on is not None and not issubclass(kind, (MqliteError, *self.retry_on))

    def delay_ms(self, attempt: int) -> int | None:
        """Return the delay after this attempt, or None for the queue's backoff."""
        if self.backoff is None:
            return None
        if callable(self.backoff):
            return milliseconds(self.backoff(attempt), "backoff")
        base_ms = milliseconds(self.backoff, "backoff")
        max_ms = max(base_ms, LONGEST_BACKOFF_MS)
        return backoff_ms(attempt, base_ms=base_ms, max_ms=max_ms, chance=random())


DEFAULT_POLICY = RetryPolicy()


def retry_policy(retry_on: Any = None, give_up_on: Any = (), backoff: Any = None) -> RetryPolicy:
    """Return the policy; raise TypeError or ValueError for an invalid argument."""
    if backoff is not None and not callable(backoff):
        milliseconds(backoff, "backoff")
    return RetryPolicy(
        retry_on=None if retry_on is None else _classes(retry_on, "retry_on"),
        give_up_on=_classes(() if give_up_on is None else give_up_on, "give_up_on"),
        backoff=backoff,
    )


def _classes(value: Any, name: str) -> tuple[type[BaseException], ...]:
    classes = tuple(value) if isinstance(value, Sequence) else (value,)
    for kind in classes:
        if not (isinstance(kind, type) and issubclass(kind, BaseException)):
            raise TypeError(
                f"{name} must be an exception class or a tuple of them, not {safe_repr(value)}"
            )
    return classes


def outcome_of(
    error: BaseException | None, policy: RetryPolicy = DEFAULT_POLICY, *, attempt: int = 1
) -> Outcome:
    """Return the verb that settles a message whose handler returned (None) or raised `error`.

    The attributes of an error and the functions of a policy can run foreign code: call this where
    the handler ran. Never raises.
    """
    return call_guarded(lambda: _outcome_of(error, policy, attempt), _broken_policy)


def _outcome_of(error: BaseException | None, policy: RetryPolicy, attempt: int) -> Outcome:
    match error:
        case None:
            return Completion()
        case Reject():
            return _rejection(error)
        case Retry():
            delay_ms = _requested_delay(error)
            return Abandonment(delay_ms=delay_ms, counts=_counts(error) or not delay_ms)
        case _ if policy.gives_up(error):
            name = type(error).__name__
            return Rejection(reason=NOT_RETRIED, description=f"{name}: {text_of(error)}")
        case _:
            return Abandonment(delay_ms=policy.delay_ms(attempt))


def _broken_policy(broken: BaseException) -> Outcome:
    logger.error(
        "the backoff of a handler raised %s; the queue's backoff is used",
        type(broken).__name__,
        exc_info=broken,
    )
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
