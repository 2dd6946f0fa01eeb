"""How long a failed message rests."""

import pytest

from django_mqlite.timing import backoff_ms

NEARLY_ONE = 1 - 2**-53


def wait(delivery_count, *, base_ms=1_000, max_ms=3_600_000, chance=0.0):
    return backoff_ms(delivery_count, base_ms=base_ms, max_ms=max_ms, chance=chance)


@pytest.mark.parametrize(
    ("delivery_count", "least"), [(1, 500), (2, 1_000), (3, 2_000), (4, 4_000), (10, 256_000)]
)
def test_half_of_the_exponential_is_certain_and_the_other_half_is_chance(delivery_count, least):
    assert wait(delivery_count) == least
    assert wait(delivery_count, chance=0.5) == least * 1.5
    assert wait(delivery_count, chance=NEARLY_ONE) == pytest.approx(least * 2, abs=1)


@pytest.mark.parametrize("delivery_count", [12, 13, 100, 10_000, 2**63 - 1])
def test_it_never_exceeds_the_maximum_however_many_deliveries(delivery_count):
    assert 1_000_000 <= wait(delivery_count, chance=NEARLY_ONE) <= 3_600_000


@pytest.mark.parametrize("delivery_count", [0, -1])
def test_a_count_below_one_is_the_first_delivery(delivery_count):
    assert wait(delivery_count) == wait(1)


def test_no_base_is_no_wait():
    assert wait(5, base_ms=0, chance=NEARLY_ONE) == 0


def test_a_maximum_below_the_base_bounds_it():
    assert wait(1, base_ms=10_000, max_ms=100, chance=NEARLY_ONE) <= 100


def test_it_is_whole_milliseconds():
    assert isinstance(wait(1, base_ms=333, chance=0.123), int)
