"""Helpers for the tests of projects: check enqueued messages, run them inline, move the clock."""

from .assertions import assert_enqueued
from .draining import TooManyDeliveries, drain
from .fake_clock import FakeClock

__all__ = ["FakeClock", "TooManyDeliveries", "assert_enqueued", "drain"]
