"""Where rows become model instances."""

import json
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

from django.db import models
from django.db.models.base import ModelState
from django.db.models.signals import post_init, pre_init

from ..fields import moment
from ..store.rows import MessageRow
from ..types import NewMessage

M = TypeVar("M", bound=models.Model)

_TIMES = ("visible_at", "enqueued_at", "expires_at", "locked_at", "locked_until", "finished_at")
_DOCUMENTS = ("properties", "errors", "result")
_TIME_PLACES = tuple(map(MessageRow._fields.index, _TIMES))
_DOCUMENT_PLACES = tuple(map(MessageRow._fields.index, _DOCUMENTS))
_BLOCKED = MessageRow._fields.index("blocked")

# Whether a new message is blocked is decided by a trigger after the row is returned, so that one
# field is left deferred: read when somebody asks for it.
_ENQUEUED = tuple(name for name in MessageRow._fields if name != "blocked")


def from_rows(model: type[M], using: str, rows: Iterable[MessageRow]) -> list[M]:
    """The rows as instances of `model`, without another query."""
    return _instances(model, using, MessageRow._fields, map(python_values, rows))


def _instances(
    model: type[M], using: str, names: Sequence[str], rows: Iterable[Sequence[Any]]
) -> list[M]:
    """What model.from_db() makes, in a third of the time while nobody listens to its signals.

    Building the instances is the larger part of what a batch costs in Python.
    """
    if pre_init.has_listeners(model) or post_init.has_listeners(model):
        return [model.from_db(using, names, values) for values in rows]
    made = []
    for values in rows:
        one = model.__new__(model)
        one.__dict__ = dict(zip(names, values, strict=True))
        one._state = state = ModelState()
        state.adding = False
        state.db = using
        made.append(one)
    return made


def from_claimed_rows(model: type[M], using: str, rows: Iterable[MessageRow]) -> list[M]:
    """The same for rows that were claimed just now: the instances hold the leases.

    A lease is not read from the row again: refreshing an instance whose lease was lost must not
    hand it the lease of whoever has the message now.
    """
    messages = from_rows(model, using, rows)
    for message in messages:
        message.claimed_token = message.lock_token  # type: ignore[attr-defined]
    return messages


def from_new_row(model: type[M], using: str, row: MessageRow) -> M:
    """The instance of a row that has just been inserted."""
    values = python_values(row)
    del values[_BLOCKED]
    return _instances(model, using, _ENQUEUED, [values])[0]


def duplicate_of(model: type[M], using: str, original: int, new: NewMessage) -> M:
    """The message that `new` repeats; what may have become of it is read when asked for."""
    known = {"id": original, "queue": new.queue, "message_id": new.message_id, "body": new.body}
    message = model.from_db(using, tuple(known), list(known.values()))
    message.duplicate = True  # type: ignore[attr-defined]
    return message


def python_values(row: MessageRow) -> list[Any]:
    values: list[Any] = list(row)
    for place in _TIME_PLACES:
        values[place] = moment(values[place])
    for place in _DOCUMENT_PLACES:
        if values[place] is not None:
            values[place] = json.loads(values[place])
    values[_BLOCKED] = bool(values[_BLOCKED])
    return values
