"""The outcome of a delivery whose handler returned or raised."""

import math
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from django_mqlite import LockLost, Reject, Retry
from django_mqlite.outcomes import outcome_of
from django_mqlite.types import Abandonment, Completion, Rejection
from tests.support.odd_errors import ODD_ERRORS, NoReason


class Later(Retry):
    """A subclass in an application."""


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (None, Completion()),
        (
            Reject("UnknownArticle", "no article 17"),
            Rejection(reason="UnknownArticle", description="no article 17"),
        ),
        (NoReason(), Rejection(reason="NoReason", description="")),
        (Retry(delay=0), Abandonment(delay_ms=0)),
        (Retry(delay=1.5), Abandonment(delay_ms=1_500)),
        (Retry(delay=timedelta(minutes=2)), Abandonment(delay_ms=120_000)),
        (Retry(delay=0.0001), Abandonment(delay_ms=1)),
        (Later(delay=3), Abandonment(delay_ms=3_000)),
    ],
)
def test_delivery_outcome_depends_on_the_raised_error(error, outcome):
    assert outcome_of(error) == outcome


@pytest.mark.parametrize("delay", [-1, math.nan, math.inf, 1e30, "soon", None, True])
def test_retry_with_an_invalid_delay_uses_the_backoff(delay):
    retry = Retry()
    retry.delay = delay

    assert outcome_of(retry) == Abandonment(delay_ms=None)


@pytest.mark.parametrize("delay", [-1, math.nan, math.inf, 1e30, "soon", None, True])
def test_retry_refuses_an_invalid_delay(delay):
    with pytest.raises((TypeError, ValueError), match=r"Retry\(delay=…\) must be"):
        Retry(delay=delay)


@pytest.mark.parametrize(
    "error",
    [
        ValueError("broken"),
        SystemExit(0),
        KeyboardInterrupt(),
        GeneratorExit(),
        LockLost("jobs", 1, "complete"),
        BaseExceptionGroup("several", [ValueError(), SystemExit()]),
    ],
    ids=lambda error: type(error).__name__,
)
def test_other_error_uses_the_backoff(error):
    assert outcome_of(error) == Abandonment(delay_ms=None)


@pytest.mark.parametrize("error", ODD_ERRORS)
def test_error_whose_attributes_raise_is_no_completion(error):
    with ThreadPoolExecutor(1) as thread:  # a KeyboardInterrupt of the main thread may be real
        outcome = thread.submit(lambda: outcome_of(error())).result()

    assert outcome != Completion()
