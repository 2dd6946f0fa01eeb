"""Fixtures for pytest, which loads this plugin wherever the package is installed.

Django is imported only when a fixture is used, because pytest loads the plugin for every project.
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from .models import Message
    from .testing import FakeClock


@pytest.fixture
def mqlite_clock() -> "Iterator[FakeClock]":
    """Yield the FakeClock of the test, stopped at the beginning of 2026."""
    from .testing.fake_clock import FakeClock  # noqa: PLC0415 - see above

    with FakeClock() as clock:
        yield clock


@pytest.fixture
def mqlite_drain(db: None) -> "Callable[..., list[Message]]":
    """Return django_mqlite.testing.drain, and enable the database for the test."""
    from .testing import drain  # noqa: PLC0415 - see above

    return drain


@pytest.fixture
def assert_enqueued(db: None) -> "Callable[..., list[Message]]":
    """Return django_mqlite.testing.assert_enqueued, and enable the database for the test."""
    from .testing.assertions import assert_enqueued as assertion  # noqa: PLC0415 - see above

    return assertion
