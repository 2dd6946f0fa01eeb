"""A clock that only a test moves."""

from datetime import datetime, timedelta

from django_mqlite.fields import moment

START_MS = 1_767_225_600_000  # 2026-01-01T00:00:00Z


class FakeClock:
    """Stands still until it is moved, forwards or backwards."""

    def __init__(self, now_ms: int = START_MS) -> None:
        self.ms = now_ms

    def now_ms(self) -> int:
        return self.ms

    @property
    def now(self) -> datetime:
        at = moment(self.ms)
        assert at is not None
        return at

    def advance(self, by: timedelta | float) -> None:
        """By a timedelta or by seconds."""
        step = by if isinstance(by, timedelta) else timedelta(seconds=by)
        self.ms += step // timedelta(milliseconds=1)
