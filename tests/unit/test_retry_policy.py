"""Which exceptions are retried, and after which delay."""

from datetime import timedelta

import pytest

from django_mqlite import Reject, Retry
from django_mqlite.exceptions import NoHandler
from django_mqlite.outcomes import RetryPolicy, outcome_of, retry_policy
from django_mqlite.types import Abandonment, Rejection

NOT_RETRIED = {
    "retry_on another": (RetryPolicy(retry_on=(ConnectionError,)), ValueError("broken")),
    "retry_on nothing": (RetryPolicy(retry_on=()), ValueError("broken")),
    "give_up_on": (RetryPolicy(give_up_on=(ValueError,)), ValueError("broken")),
    "give_up_on a base": (RetryPolicy(give_up_on=(Exception,)), ValueError("broken")),
    "give_up_on first": (
        RetryPolicy(retry_on=(Exception,), give_up_on=(ValueError,)),
        ValueError("broken"),
    ),
}


@pytest.mark.rule("3.9")
@pytest.mark.parametrize(("policy", "error"), NOT_RETRIED.values(), ids=NOT_RETRIED)
def test_exception_that_is_not_worth_a_retry_is_rejected(policy, error):
    assert outcome_of(error, policy) == Rejection(
        reason="NotRetried", description="ValueError: broken"
    )


RETRIED = {
    "no lists": (RetryPolicy(), ValueError()),
    "retry_on": (RetryPolicy(retry_on=(ConnectionError,)), ConnectionResetError()),
    "not give_up_on": (RetryPolicy(give_up_on=(KeyError,)), ValueError()),
    "Retry": (RetryPolicy(retry_on=(), give_up_on=(Exception,)), Retry(delay=0)),
    "of the package": (RetryPolicy(retry_on=()), NoHandler("jobs", None)),
}


@pytest.mark.rule("3.9")
@pytest.mark.parametrize(("policy", "error"), RETRIED.values(), ids=RETRIED)
def test_exception_that_is_worth_a_retry_is_abandoned(policy, error):
    assert isinstance(outcome_of(error, policy), Abandonment)


@pytest.mark.rule("3.9")
def test_reject_keeps_its_reason_whatever_the_policy():
    policy = RetryPolicy(retry_on=(Exception,))

    assert outcome_of(Reject("R", "why"), policy) == Rejection(reason="R", description="why")


@pytest.mark.rule("3.9")
@pytest.mark.parametrize(
    ("backoff", "delays_ms"),
    [
        (lambda attempt: attempt * 10, [10_000, 20_000, 30_000]),
        (lambda attempt: timedelta(minutes=attempt), [60_000, 120_000, 180_000]),
        (lambda attempt: 0, [0, 0, 0]),
    ],
    ids=["seconds", "timedelta", "at once"],
)
def test_backoff_function_gets_the_number_of_the_attempt(backoff, delays_ms):
    policy = RetryPolicy(backoff=backoff)

    outcomes = [outcome_of(ValueError(), policy, attempt=attempt) for attempt in (1, 2, 3)]

    assert outcomes == [Abandonment(delay_ms=delay_ms) for delay_ms in delays_ms]


def raise_error(attempt):
    raise RuntimeError("broken")


def exit_worker(attempt):
    raise SystemExit(1)


@pytest.mark.rule("3.9")
@pytest.mark.parametrize(
    "backoff",
    [raise_error, exit_worker, lambda attempt: -1, lambda attempt: "soon", lambda: 1,
     lambda attempt: None],
    ids=["error", "exit", "negative", "text", "no parameter", "nothing"],
)  # fmt: skip
def test_backoff_function_that_fails_is_logged_and_replaced_by_the_queues(backoff, caplog):
    assert outcome_of(ValueError(), RetryPolicy(backoff=backoff)) == Abandonment(delay_ms=None)
    assert "the queue's backoff is used" in caplog.text


class OddType(type):
    def __subclasscheck__(cls, subclass):
        raise RuntimeError("broken")


def test_exception_class_with_a_broken_check_falls_back_to_the_backoff():
    odd = OddType("Odd", (Exception,), {})

    assert outcome_of(ValueError(), RetryPolicy(give_up_on=(odd,))) == Abandonment()


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        (ValueError, (ValueError,)),
        ((ValueError, KeyError), (ValueError, KeyError)),
        ([ValueError], (ValueError,)),
        ((), ()),
    ],
)
def test_exception_classes_are_a_class_or_several(given, stored):
    policy = retry_policy(given, given)

    assert policy.retry_on == policy.give_up_on == stored


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("retry_on", "ValueError"),
        ("retry_on", (ValueError, "KeyError")),
        ("retry_on", ValueError("x")),
        ("give_up_on", int),
        ("give_up_on", 7),
        ("backoff", -1),
        ("backoff", "soon"),
    ],
    ids=str,
)
def test_invalid_retry_option_is_refused_by_name(name, value):
    with pytest.raises((TypeError, ValueError), match=name):
        retry_policy(**{name: value})
