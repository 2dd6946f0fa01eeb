"""The answer to "what became of this message?" where it is not there any more, purely decided."""

from dataclasses import dataclass
from typing import Any

from django.utils.translation import gettext as _

from .fields import iso
from .spoken import length, time_of
from .store.explain import LastSettlement
from .store.receipt import RECEIPT_LIFE_MS
from .types import Explanation


@dataclass(frozen=True, slots=True, kw_only=True)
class Gone:
    """What can still be found of a message that is not there; times in epoch milliseconds."""

    now: int
    newest_id: int
    settlement: LastSettlement | None
    after: int | None
    before: int | None


def reason_for_gone(id: int, gone: Gone) -> Explanation:
    """What became of a message that is not there, as far as anything still tells."""
    facts: dict[str, Any] = {"id": id, "queue": None, "state": None}
    if not 0 < id <= gone.newest_id:
        text = _("there has never been a message #%(id)d; the last one is #%(newest)d")
        newest = {"id": id, "newest": gone.newest_id}
        return Explanation(
            code="never_enqueued", text=text % newest, facts=facts | {"newest_id": gone.newest_id}
        )
    if gone.settlement is not None and gone.settlement.verb == "complete":
        return _completed_and_gone(facts, gone.settlement, gone)
    text = _(
        "is gone: cancelled, purged, discarded, taken for good, or completed more than %(life)s "
        "ago; it was enqueued %(enqueued)s"
    )
    said = {"life": length(RECEIPT_LIFE_MS), "enqueued": _between(gone)}
    facts |= {"enqueued_after": iso(gone.after), "enqueued_before": iso(gone.before)}
    return Explanation(code="gone", text=text % said, facts=facts)


def _completed_and_gone(
    facts: dict[str, Any], settlement: LastSettlement, gone: Gone
) -> Explanation:
    at = settlement.expires_at - RECEIPT_LIFE_MS
    text = _("was completed at %(at)s, and queue %(queue)s keeps it no longer")
    said = {"at": time_of(at, now=gone.now), "queue": settlement.queue}
    facts |= {"queue": settlement.queue, "finished_at": iso(at)}
    return Explanation(code="completed_and_gone", text=text % said, facts=facts)


def _between(gone: Gone) -> str:
    """When it must have been enqueued: its neighbours by id are still there, or are not."""
    before = _("before %(time)s") % {"time": time_of(gone.before or gone.now, now=gone.now)}
    if gone.after is None:
        return before
    return _("after %(after)s and %(before)s") % {
        "after": time_of(gone.after, now=gone.now),
        "before": before,
    }
