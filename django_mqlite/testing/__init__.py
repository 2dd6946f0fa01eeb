"""For the tests of projects: what is in the queue, work it off inline, and move its clock."""

from .assertions import assert_enqueued
from .draining import TooManyDeliveries, drain
from .fake_clock import FakeClock

__all__ = ["FakeClock", "TooManyDeliveries", "assert_enqueued", "drain"]
