"""Messages are looked at, found and explained."""

import re

from ..store import sqlite as store
from ..types import MAX_INTEGER, Explanation, Page, State, clamped
from .base import M, Verbs, from_rows, positive, require_queue
from .explain import explain

PLACE = re.compile(r"([0-9]{1,9})-([0-9]{1,18})")


class FindVerbs(Verbs[M]):
    """Reading: nothing here writes."""

    def peek(self, queue: str, *, limit: int = 10) -> list[M]:
        """The next messages of `queue` in claim order, without a lease. Raises QueueNotFound.

        First those a claim could take, then those that wait behind another of their group.
        """
        positive(limit, "limit")
        connection = self.connection
        rows = store.find.peek(connection, queue, limit=limit)
        if not rows:
            require_queue(connection, queue)
        return from_rows(self.model, self.database, rows)

    # Django's explain() of a query is still there on the query.
    def explain(self, id: int) -> Explanation:  # type: ignore[override]
        """Why the message with this id has not run, what holds it, or what became of it.

        A read, quick at any depth; also for an id that is not there.
        """
        return explain(self.connection, id)

    def find(
        self,
        *,
        queue: str | None = None,
        state: str | None = None,
        group: str | None = None,
        text: str | None = None,
        limit: int = 50,
        after: str | None = None,
    ) -> Page:
        """A page of the ids of messages of this queue, state, group, or with this `text`.

        `text` is a sequence number, a message id, a correlation id or the beginning of a subject,
        case counting. `after` is the `next` of the page before. The order is: all there are, the
        newest first, and so are those of a group; those of a state in the order of their turn, the
        finished ones the latest first; those of a queue by state, and those of a state by queue,
        except dead letters, the latest first. Quick at any size, also with a million messages.

        Raises QueueNotFound, and ValueError for no such state or place.
        """
        positive(limit, "limit")
        if state is not None and state not in set(State):
            raise ValueError(f"{state!r} is none of the states {', '.join(State)}")
        connection = self.connection
        if queue is not None:
            require_queue(connection, queue)
        wanted = store.find.Wanted(queue=queue, state=state, group=group, text=text)
        limit = min(limit, MAX_INTEGER - 1)  # one more is read, for the next page
        ids, place = store.find.find(connection, wanted, limit=limit, place=_place(after))
        return Page(ids=tuple(ids), next=_said(place))

    def newest_id(self) -> int:
        """The id of the message that was stored last, there or not; 0 for none."""
        return store.explain.newest_id(self.connection)

    def arrivals(self, after: int, *, queue: str | None = None, limit: int = 100) -> list[M]:
        """The first messages with an id above `after`, in the order of their ids.

        Those that are gone already are not among them. Raises QueueNotFound.
        """
        positive(limit, "limit")
        connection = self.connection
        if queue is not None:
            require_queue(connection, queue)
        rows = store.find.arrivals(connection, queue, after=clamped(after), limit=limit)
        return from_rows(self.model, self.database, rows)

    def data_version(self) -> int:
        """A number that changes when another connection commits; own commits do not count."""
        connection = self.connection
        connection.ensure_connection()
        with connection.wrap_database_errors:
            return store.base.data_version(connection.connection)


def _place(said: str | None) -> store.find.Place:
    if said is None:
        return store.find.Place()
    match = PLACE.fullmatch(said)
    if match is None:
        raise ValueError(f"{said!r} is no place in a list; give the `next` of a page")
    return store.find.Place(int(match[1]), int(match[2]) - 1)


def _said(place: store.find.Place | None) -> str | None:
    return None if place is None else f"{place.section}-{place.within + 1}"
