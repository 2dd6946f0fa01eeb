"""The dispatcher: enqueues the ticks of recurring schedules when they are due."""

from collections.abc import Mapping

from .. import timing
from ..conf import get_settings
from ..exceptions import HandlersNotImported
from ..guard import get_logger
from ..recurring import all_schedules
from ..schedules import Schedule
from ..verbs.schedules import dispatch_due, due_times, sync_schedules

logger = get_logger("django_mqlite.worker")


class Dispatcher:
    """Dispatch schedules. Several processes may do so at once: each tick is enqueued once.

    It keeps in memory when each schedule is due, so it queries the database only when one is.
    `complete` is False if schedules may be missing, so that no record is deleted.
    """

    def __init__(
        self, using: str, schedules: Mapping[str, Schedule], *, complete: bool = True
    ) -> None:
        self._using = using
        self._schedules = schedules
        self._complete = complete
        self._due: dict[str, int] | None = None
        self._polled_at = 0

    @classmethod
    def of_project(cls, using: str) -> "Dispatcher":
        """Return a dispatcher for every schedule of the project.

        A standalone reaper releases leases even if the project's modules cannot be imported. Then
        it dispatches only the schedules of the settings.
        """
        try:
            return cls(using, all_schedules())
        except HandlersNotImported as error:
            logger.error("schedules of @periodic are not dispatched: %s", error)
            return cls(using, get_settings().schedules, complete=False)

    def poll(self) -> float | None:
        """Dispatch what is due; return the seconds until the next tick, None if there is none.

        The first call also starts new schedules, and deletes the records of removed ones.
        """
        if self._due is None:
            self._due = sync_schedules(self._using, self._schedules, complete=self._complete)
        elif self._clock_was_set_back:
            self._due = due_times(self._using, self._schedules)
        if not self._due:
            return None
        self._polled_at = timing.now_ms()
        for name in [name for name, at in self._due.items() if at <= self._polled_at]:
            at = dispatch_due(self._using, self._schedules[name])
            if at is None:
                del self._due[name]
            else:
                self._due[name] = at
        if not self._due:
            return None
        return max(0.0, (min(self._due.values()) - timing.now_ms()) / 1000)

    @property
    def _clock_was_set_back(self) -> bool:
        return bool(self._due) and timing.now_ms() < self._polled_at
