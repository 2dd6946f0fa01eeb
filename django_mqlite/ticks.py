"""The ticks of recurring schedules: cron expressions and fixed periods, in epoch milliseconds."""

from collections.abc import Iterator
from dataclasses import dataclass
from zoneinfo import ZoneInfo

from .guard import safe_repr
from .timing import EPOCH, FIRST, Duration, epoch_ms, milliseconds, moment

SHORTEST_PERIOD_MS = 1_000

NARROWEST_WINDOW_MS = 600_000
"""The first window in which Cron.last() looks for ticks; it doubles until it has enough."""


@dataclass(frozen=True, slots=True)
class Cron:
    """The ticks of a cron expression of five or six fields in a time zone.

    With five fields, daylight-saving changes are treated as in Debian's cron: if minute and hour
    are fixed, a time that the clock skips runs right after the gap, and a time that it repeats runs
    once. Otherwise, and always with six fields, ticks follow local time.
    """

    expression: str
    timezone: str

    @classmethod
    def parse(cls, expression: object, timezone: object, where: str) -> "Cron":
        """Return the validated expression; raise TypeError or ValueError that names `where`."""
        if not isinstance(expression, str):
            raise TypeError(f"{where}['cron'] must be a str, not {safe_repr(expression)}")
        cron = cls(" ".join(expression.split()), _checked_timezone(timezone, where))
        try:
            first = cron.after(0)
        except ImportError:  # cronsim is not installed
            raise
        except Exception as error:  # cronsim asserts what it does not check
            raise ValueError(
                f"{where}['cron'] is not a valid cron expression: {safe_repr(expression)}"
                f"{f' ({error})' if str(error) else ''}. Use five fields (minute, hour, day of "
                'month, month, day of week), such as "0 3 * * *", or six with seconds first.'
            ) from error
        if first is None:
            raise ValueError(f"{where}['cron'] never matches a date: {safe_repr(expression)}")
        return cron

    @property
    def text(self) -> str:
        """The definition, for people and for comparison."""
        return f"cron {self.expression} ({self.timezone})"

    def after(self, ms: int) -> int | None:
        """Return the first tick after `ms`, or None if there is none within 50 years."""
        return next(self._from(ms), None)

    def last(self, *, after: int, until: int, limit: int) -> list[int]:
        """Return the last `limit` ticks after `after` and not after `until`, in order.

        The cost does not depend on the length of the time in between.
        """
        window = NARROWEST_WINDOW_MS
        while True:
            start = max(after, until - window)
            ticks = []
            for tick in self._from(start):
                if tick > until:
                    break
                ticks.append(tick)
            if len(ticks) >= limit or start == after:
                return ticks[-limit:]
            window *= 2

    def _from(self, ms: int) -> Iterator[int]:
        """Yield the ticks after `ms`, in order, each once.

        In the hour that the clock repeats, cronsim starts before `ms`; in the one that it skips,
        two times of the expression can become the same tick.
        """
        from cronsim import CronSim  # noqa: PLC0415 - only where there is a cron expression

        at = moment(ms) or EPOCH
        previous = ms
        for found in CronSim(self.expression, max(at, FIRST).astimezone(ZoneInfo(self.timezone))):
            tick = epoch_ms(found)
            if tick > previous:
                previous = tick
                yield tick


@dataclass(frozen=True, slots=True)
class Every:
    """The ticks of a fixed period: its multiples since 1970 plus `phase_ms`.

    They do not depend on when a process starts, so all processes agree on them.
    """

    period_ms: int
    phase_ms: int = 0

    @classmethod
    def parse(cls, period: Duration, phase: Duration, where: str) -> "Every":
        """Return the validated period; raise TypeError or ValueError that names `where`."""
        period_ms = milliseconds(period, f"{where}['every']", minimum=SHORTEST_PERIOD_MS)
        phase_ms = milliseconds(phase, f"{where}['phase']")
        if phase_ms >= period_ms:
            raise ValueError(
                f"{where}['phase'] must be shorter than 'every', not {safe_repr(phase)}"
            )
        return cls(period_ms, phase_ms)

    @property
    def text(self) -> str:
        """The definition, for people and for comparison."""
        phase = f" + {self.phase_ms / 1000:.15g} s" if self.phase_ms else ""
        return f"every {self.period_ms / 1000:.15g} s{phase}"

    def after(self, ms: int) -> int:
        """Return the first tick after `ms`."""
        return ((ms - self.phase_ms) // self.period_ms + 1) * self.period_ms + self.phase_ms

    def last(self, *, after: int, until: int, limit: int) -> list[int]:
        """Return the last `limit` ticks after `after` and not after `until`, in order."""
        newest = self.after(until) - self.period_ms
        oldest = max(self.after(after), newest - (limit - 1) * self.period_ms)
        return list(range(oldest, newest + 1, self.period_ms))


Ticks = Cron | Every


def _checked_timezone(name: object, where: str) -> str:
    try:
        if isinstance(name, str) and name:
            ZoneInfo(name)
            return name
    except (KeyError, OSError, ValueError):  # unknown, a directory, or not a relative path
        pass
    raise ValueError(
        f"{where}['timezone'] is not a known time zone: {safe_repr(name)}. Use a name such as "
        '"Europe/Berlin" or "UTC".'
    )
