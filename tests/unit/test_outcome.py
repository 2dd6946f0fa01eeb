"""How a delivery ends, decided from how its handler ended."""

import math
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from django_mqlite import LockLost, Reject, Retry
from django_mqlite.outcomes import outcome_of
from django_mqlite.types import Abandonment, Completion, Rejection
from tests.support.odd_errors import ODD_ERRORS, NoReason


def test_a_handler_that_returned_completes():
    assert outcome_of(None) == Completion()


def test_reject_dead_letters_with_its_reason_and_description():
    outcome = outcome_of(Reject("UnknownArticle", "no article 17"))

    assert outcome == Rejection(reason="UnknownArticle", description="no article 17")


@pytest.mark.parametrize(
    ("delay", "delay_ms"),
    [(0, 0), (1.5, 1_500), (timedelta(minutes=2), 120_000), (0.0001, 1)],
)
def test_retry_abandons_with_the_delay_it_asks_for(delay, delay_ms):
    assert outcome_of(Retry(delay=delay)) == Abandonment(delay_ms=delay_ms)


@pytest.mark.parametrize("delay", [-1, math.nan, math.inf, 1e30, "soon", None, True])
def test_retry_with_a_delay_that_is_none_falls_back_to_the_backoff(delay):
    assert outcome_of(Retry(delay=delay)) == Abandonment(delay_ms=None)


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
def test_anything_else_abandons_with_the_backoff(error):
    assert outcome_of(error) == Abandonment(delay_ms=None)


def test_a_rejection_without_a_reason_has_the_name_of_its_class():
    assert outcome_of(NoReason()) == Rejection(reason="NoReason", description="")


@pytest.mark.parametrize("error", ODD_ERRORS)
def test_every_error_has_an_outcome_whatever_its_attributes_do(error):
    with ThreadPoolExecutor(1) as thread:  # a KeyboardInterrupt of the main thread may be real
        outcome = thread.submit(lambda: outcome_of(error())).result()

    assert outcome != Completion()


def test_a_subclass_ends_as_its_base_does():
    class Later(Retry):
        """An application's own."""

    assert outcome_of(Later(delay=3)) == Abandonment(delay_ms=3_000)
