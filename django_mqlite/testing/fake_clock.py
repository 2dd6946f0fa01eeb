"""A clock that moves only when a test moves it."""

from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import Self

from ..timing import EPOCH, Clock, epoch_ms, use_clock

START = datetime(2026, 1, 1, tzinfo=UTC)
START_MS = epoch_ms(START)


class FakeClock:
    """A stopped clock that can be moved forwards and backwards. A `with` block activates it.

    It controls the queue's schedules, leases, backoff and times to live. It does not change the
    time that the project reads from Django or Python.
    """

    def __init__(self, at: datetime = START) -> None:
        self.ms = epoch_ms(at)
        self._in_use: list[AbstractContextManager[Clock]] = []

    def now_ms(self) -> int:
        """Return the current time of the clock in epoch milliseconds."""
        return self.ms

    @property
    def now(self) -> datetime:
        """The current time of the clock, as an aware datetime in UTC."""
        return EPOCH + timedelta(milliseconds=self.ms)

    def advance(self, by: timedelta | float) -> None:
        """Move the clock by a timedelta or by seconds, backwards if negative."""
        step = by if isinstance(by, timedelta) else timedelta(seconds=by)
        self.ms += step // timedelta(milliseconds=1)

    def __enter__(self) -> Self:
        using = use_clock(self)
        using.__enter__()
        self._in_use.append(using)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._in_use.pop().__exit__(kind, error, trace)
