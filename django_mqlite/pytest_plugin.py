"""Fixtures for pytest; the plugin is there as soon as this package is installed.

Nothing of Django is imported before a fixture is asked for: pytest loads this for every project.
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from .models import Message
    from .testing import FakeClock


@pytest.fixture
def mqlite_clock() -> "Iterator[FakeClock]":
    """The queue's clock for the length of the test, standing still at the beginning of 2026."""
    from .testing.fake_clock import FakeClock  # noqa: PLC0415 - see above

    with FakeClock() as clock:
        yield clock


@pytest.fixture
def mqlite_drain(db: None) -> "Callable[..., list[Message]]":
    """django_mqlite.testing.drain, with the database."""
    from .testing import drain  # noqa: PLC0415 - see above

    return drain


@pytest.fixture
def assert_enqueued(db: None) -> "Callable[..., list[Message]]":
    """django_mqlite.testing.assert_enqueued, with the database."""
    from .testing import assert_enqueued as asserted  # noqa: PLC0415 - see above

    return asserted
