"""Rates, their token buckets, and the room that limits leave."""

from datetime import timedelta

import pytest

from django_mqlite.limits import Bucket, QueueLimits, Rate, read_rate

MINUTE = 60_000
SHAPE = 'such as "100/min"'


def rate(count, period_ms):
    return Rate(count=count, period_ms=period_ms)


def full(count, period_ms, *, at=0):
    return Bucket(rate=rate(count, period_ms), level=count * period_ms, updated_at=at)


@pytest.mark.parametrize(
    ("value", "count", "period_ms", "text"),
    [
        ("100/min", 100, MINUTE, "100/min"),
        ("10/s", 10, 1_000, "10/s"),
        ("1000/h", 1_000, 60 * MINUTE, "1000/h"),
        ("5/d", 5, 24 * 60 * MINUTE, "5/d"),
        ("1/30s", 1, 30_000, "1/30s"),
        (" 3 / 1.5 s ", 3, 1_500, "3/1.5s"),
        ("2/minute", 2, MINUTE, "2/min"),
        ("2/m", 2, MINUTE, "2/min"),
        ("60/60s", 60, MINUTE, "60/min"),
        ((100, 60), 100, MINUTE, "100/min"),
        ([7, timedelta(hours=2)], 7, 120 * MINUTE, "7/2h"),
        ((1, 0.001), 1, 1, "1/0.001s"),
    ],
    ids=str,
)
@pytest.mark.rule("17.1")
def test_rate_is_read_and_written_in_one_form(value, count, period_ms, text):
    read = read_rate(value, "rate")

    assert read == rate(count, period_ms)
    assert str(read) == text
    assert read_rate(text, "rate") == read


@pytest.mark.parametrize(
    ("value", "error"),
    [
        *((value, SHAPE) for value in ("", "100", "/min", "x/min", "-1/s", "1/year", "1" * 99)),
        *((value, SHAPE) for value in ("1.5/s", "1/s/s", "1/-5s", "\uff11/s")),
        *((value, SHAPE) for value in (100, None, (1,), (1, 2, 3), ("1", 2), (True, 2))),
        *((value, "1 to 1,000,000 deliveries") for value in ("0/s", "2000000/s", "1/0s", (0, 1))),
        *((value, "366 days") for value in ("1/367d", (1, timedelta(days=367)))),
        *((value, "the period of rate") for value in ((1, 0), (1, -1), (1, "min"), (1, None))),
    ],
    ids=repr,
)
@pytest.mark.rule("17.1")
def test_invalid_rate_is_refused_with_the_valid_shape(value, error):
    with pytest.raises((TypeError, ValueError), match=error):
        read_rate(value, "rate")


def test_bucket_refills_evenly_without_losing_fractions():
    """Seven in a second are one each 142.857 ms."""
    empty = full(7, 1_000).take(7)
    bucket, times = empty, []
    for now in range(1, 2_001):
        bucket = bucket.at(now)
        if bucket.tokens:
            bucket = bucket.take(1)
            times.append(now)

    assert times == [-(-1_000 * number // 7) for number in range(1, 15)]


def test_bucket_holds_at_most_its_count():
    bucket = full(3, MINUTE).at(10**15)

    assert (bucket.tokens, bucket.next_token_at) == (3, None)


@pytest.mark.parametrize("count", [1, 7, 100, 999])
def test_next_token_is_there_at_its_time_and_not_before(count):
    bucket = full(count, MINUTE).take(count).at(17)
    due = bucket.next_token_at

    assert due is not None
    assert (bucket.at(due - 1).tokens, bucket.at(due).tokens) == (0, 1)


@pytest.mark.rule("17.6")
def test_clock_that_steps_back_adds_no_tokens_and_the_bucket_refills_from_there():
    bucket = full(60, MINUTE, at=10**6).take(60)

    back = bucket.at(10)

    assert back.tokens == 0
    assert (back.at(1_009).tokens, back.at(1_010).tokens) == (0, 1)


def test_changed_rate_keeps_the_tokens_up_to_the_new_count():
    bucket = full(100, MINUTE).take(70)

    assert bucket.with_rate(rate(50, 1_000)).tokens == 30
    assert bucket.with_rate(rate(20, 1_000)).tokens == 20
    assert bucket.with_rate(rate(1_000_000, 366 * 24 * 60 * MINUTE)).tokens == 30


def test_room_is_the_smaller_of_both_limits():
    tokens = full(5, MINUTE)

    assert QueueLimits(max_in_flight=3, in_flight=1, bucket=tokens).room == 2
    assert QueueLimits(max_in_flight=9, in_flight=1, bucket=tokens).room == 5
    assert QueueLimits(max_in_flight=3, in_flight=4, first_expiry=9, bucket=tokens).room == 0
    assert not QueueLimits().is_set


def test_limit_opens_at_the_first_expiry_or_the_next_token():
    in_flight = {"max_in_flight": 1, "in_flight": 1, "first_expiry": 50_000}
    empty = full(1, MINUTE).take(1)

    assert QueueLimits(**in_flight).opens_at == 50_000
    assert QueueLimits(bucket=empty).opens_at == MINUTE
    assert QueueLimits(**in_flight, bucket=empty).opens_at == MINUTE
    assert QueueLimits(bucket=full(1, MINUTE)).opens_at == 0
