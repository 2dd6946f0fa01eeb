"""Peek at, find and explain messages. Reads only."""

import json
import re
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from django.db import models
from django.db.models import F, Func
from django.db.models.functions import Cast

from ..arguments import (
    checked_id,
    checked_ids,
    checked_integer,
    checked_text,
    encode_text,
    optional_text,
)
from ..guard import safe_repr
from ..store import sqlite as store
from ..timing import epoch_ms
from ..types import MAX_INTEGER, Explanation, Page, State
from .async_twins import async_twin, has_async_twin
from .base import M, Verbs, from_rows, require_queue
from .explain import explain

MAX_SEARCHED = 10_000
"""Maximum messages whose contents are searched for one page."""
MAX_SEARCHED_BYTES = 32 * 1024 * 1024
"""The bytes of bodies after which the search for one page stops."""
MIN_SEARCH_BATCH = 100
"""Messages that are searched before their bytes are counted."""

POSITION = re.compile(r"([0-9]{1,9})-([0-9]{1,18})")


def _optional_state(state: Any) -> str | None:
    """Return None or the name of a state; raise ValueError for other values."""
    if state is not None and not (isinstance(state, str) and state in set(State)):
        raise ValueError(f"state must be one of {', '.join(State)}, not {safe_repr(state)}")
    return state


def last_error_text() -> Cast:
    """Return the expression for the text of the last recorded error of a message, or NULL.

    Use it only for a few messages, selected by id, because it reads all `errors` of each.
    """
    text = Func(
        F("errors"),
        template="CASE WHEN json_valid(%(expressions)s) "
        "THEN json_extract(%(expressions)s, '$[#-1].message') END",
    )
    return Cast(text, models.TextField())


class FindVerbs(Verbs[M]):
    """Peek at, find and explain messages. Reads only."""

    def peek(self, queue: str, *, limit: int = 10) -> list[M]:
        """Return the next messages of `queue` in claim order, without a lease.

        Claimable messages come first, then those that are blocked by another message of their
        group. Raises QueueNotFound.
        """
        queue = checked_text(queue, "queue")
        limit = checked_integer(limit, "limit")
        connection = self.connection
        rows = store.find.peek(connection, queue, limit=limit)
        if not rows:
            require_queue(connection, queue)
        return from_rows(self.model, self.database, rows)

    def browse(
        self,
        queue: str,
        *,
        from_id: int = 0,
        state: str | None = None,
        limit: int = 32,
        max_bytes: int = MAX_INTEGER,
    ) -> list[M]:
        """Return the messages of `queue` with ids of at least `from_id`, sorted by id.

        `state` selects those in one state. The message that brings the bodies over `max_bytes` is
        the last one. Raises QueueNotFound, and ValueError for an invalid state.
        """
        queue = checked_text(queue, "queue")
        connection = self.connection
        rows = store.find.browse(
            connection,
            queue,
            from_id=checked_id(from_id, "from_id"),
            state=_optional_state(state),
            limit=checked_integer(limit, "limit"),
            max_bytes=checked_integer(max_bytes, "max_bytes"),
        )
        if not rows:
            require_queue(connection, queue)
        return from_rows(self.model, self.database, rows)

    # Overrides Django's explain() of a query, which every query set still has.
    @has_async_twin
    def explain(self, id: int, *, quote_errors: bool = True) -> Explanation:  # type: ignore[override]
        """Explain why the message has not run, what holds it, or how it ended.

        The cost does not depend on the number of messages. The message may have been deleted. With
        `quote_errors` False, the classes of errors are named but not their texts, which can quote
        the body.
        """
        return explain(self.connection, id, quote_errors=quote_errors)

    aexplain = async_twin(explain)  # type: ignore[arg-type]

    def find(  # noqa: PLR0913 - criteria, and a page
        self,
        *,
        queue: str | None = None,
        state: str | None = None,
        group: str | None = None,
        text: str | None = None,
        containing: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        among: models.QuerySet[Any] | None = None,
        limit: int = 50,
        after: str | None = None,
    ) -> Page:
        """Return a page of ids of messages with this queue, state, group and `text`.

        `text` is a sequence number, a message id, a correlation id or the beginning of a subject
        (case-sensitive). `since` and `until` are aware datetimes: the messages enqueued from one up
        to the other, in the order of their ids. `after` is the `next` of the previous page. The
        order is:

        - all messages, and those of a group: newest first
        - messages of a queue: by state
        - messages of a state: by queue, except dead letters, which are newest first
        - within a state: in delivery order; finished messages newest first

        The cost of a page does not depend on the number of messages. `containing` is a text in the
        body or the errors (case-sensitive), and `among` a query set that the messages must be in.
        These two are checked for at most 10,000 messages per page, and until 32 MiB of bodies have
        been read. The page's `searched` says that the search stopped there; it continues with
        `after`.

        Raises QueueNotFound, and ValueError for an invalid state or position.
        """
        limit = checked_integer(limit, "limit")
        state = _optional_state(state)
        queue = optional_text(queue, "queue")
        group = optional_text(group, "group")
        for name, value in (("text", text), ("containing", containing)):
            if value is not None and not isinstance(value, str):
                raise TypeError(f"{name} must be a str, not {safe_repr(value)}")
            encode_text(value or "", name)
        if among is not None and not isinstance(among, models.QuerySet):
            raise TypeError(f"among must be a query set of messages, not {safe_repr(among)}")
        connection = self.connection
        if queue is not None:
            require_queue(connection, queue)
        first, end = self.ids_enqueued(since, until)
        criteria = store.find.Criteria(
            queue=queue, state=state, group=group, text=text, first=first, end=end
        )
        limit = min(limit, MAX_INTEGER - 1)  # one more is read, for the next page
        position = _parse_position(after)
        if containing or among is not None:
            return self._search(criteria, containing or "", among, limit=limit, position=position)
        ids, following = store.find.find(connection, criteria, limit=limit, position=position)
        return Page(ids=tuple(ids), next=_format_position(following))

    def ids_enqueued(self, since: datetime | None, until: datetime | None) -> tuple[int, int]:
        """Return the first id of the messages enqueued from `since`, and the first from `until`.

        Without a time, it is the lowest or the highest possible id.
        """
        bounds = [-MAX_INTEGER - 1, MAX_INTEGER]
        for index, (name, at) in enumerate((("since", since), ("until", until))):
            if at is not None:
                if not isinstance(at, datetime):
                    raise TypeError(f"{name} must be an aware datetime, not {safe_repr(at)}")
                bounds[index] = store.find.first_id_since(self.connection, epoch_ms(at))
        return bounds[0], bounds[1]

    def _search(
        self,
        criteria: store.find.Criteria,
        text: str,
        among: models.QuerySet[Any] | None,
        *,
        limit: int,
        position: store.find.Position,
    ) -> Page:
        """Read the list in batches until a page is full, its end is reached, or a limit is."""
        connection: Any = self.connection
        matching: list[int] = []
        searched = read_bytes = 0
        batch = max(MIN_SEARCH_BATCH, limit)
        while True:
            ids, following = store.find.find(connection, criteria, limit=batch, position=position)
            kept = self._matching(ids, text, among)
            wanted = [id for id in ids if id in kept][: limit - len(matching)]
            matching += wanted
            searched += len(ids)
            read_bytes += store.find.total_bytes(connection, ids) if text else 0
            if len(matching) == limit and wanted[-1] != ids[-1]:
                count = ids.index(wanted[-1]) + 1
                _, following = store.find.find(connection, criteria, limit=count, position=position)
            next_page = _format_position(following)
            if following is None or len(matching) == limit:
                return Page(ids=tuple(matching), next=next_page)
            if searched >= MAX_SEARCHED or read_bytes >= MAX_SEARCHED_BYTES:
                return Page(ids=tuple(matching), next=next_page, searched=searched)
            position = following
            affordable = (MAX_SEARCHED_BYTES - read_bytes) * searched // max(read_bytes, 1)
            batch = max(MIN_SEARCH_BATCH, min(MAX_SEARCHED - searched, affordable))

    def _matching(
        self, ids: Sequence[int], text: str, among: models.QuerySet[Any] | None
    ) -> set[int]:
        kept = set(ids)
        if among is not None:
            rows = among.filter(pk__in=ids).order_by()
            kept &= set(rows.values_list("pk", flat=True))
        if text and kept:
            kept &= store.find.containing(self.connection, sorted(kept), text)
        return kept

    def heads_of(self, ids: Iterable[int]) -> dict[int, int]:
        """Return the message that each of these blocked messages waits for, by its id."""
        rows = store.queues.BLOCKING_HEADS.all(self.connection, ids=json.dumps(checked_ids(ids)))
        return {blocked: head for _queue, blocked, _since, head, *_state in rows}

    def newest_id(self) -> int:
        """Return the id of the message stored last, even if it has been deleted; 0 for none."""
        return store.explain.newest_id(self.connection)

    def arrivals(self, after: int, *, queue: str | None = None, limit: int = 100) -> list[M]:
        """Return the first messages with ids above `after`, sorted. Raises QueueNotFound."""
        queue = optional_text(queue, "queue")
        limit = checked_integer(limit, "limit")
        after = checked_id(after, "after")
        connection = self.connection
        if queue is not None:
            require_queue(connection, queue)
        rows = store.find.arrivals(connection, queue, after=after, limit=limit)
        return from_rows(self.model, self.database, rows)

    def data_version(self) -> int:
        """Return a number that changes when another connection commits to the file."""
        connection = self.connection
        connection.ensure_connection()
        with connection.wrap_database_errors:
            return store.base.data_version(connection.connection)


def _parse_position(text: str | None) -> store.find.Position:
    if text is None:
        return store.find.Position()
    match = POSITION.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise ValueError(f"after must be the `next` of a page, not {safe_repr(text)}")
    return store.find.Position(int(match[1]), int(match[2]) - 1)


def _format_position(position: store.find.Position | None) -> str | None:
    return None if position is None else f"{position.section}-{position.offset + 1}"
