"""The base class of the verbs, and the conversion of rows to instances."""

import json
from collections.abc import Iterable
from functools import cache, partial
from typing import Any, TypeVar

from django.apps import apps
from django.db import connections, models, router
from django.db.models.base import ModelState
from django.db.models.signals import post_init, pre_init

from ..exceptions import QueueNotFound
from ..guard import call_guarded
from ..schema import check_schema
from ..store import sqlite as store
from ..store.sqlite.base import MessageRow
from ..store.sqlite.enqueue import Stored
from ..timing import Duration, milliseconds, moment
from ..types import NewMessage
from .orm_guards import GuardedQuerySet


def get_model(name: str) -> Any:
    """Return one of the app's models. Models import the verbs, so the verbs look them up."""
    return apps.get_model("django_mqlite", name)


M = TypeVar("M", bound=models.Model)

_TIMES = ("visible_at", "enqueued_at", "expires_at", "locked_at", "locked_until", "finished_at")
_DOCUMENTS = ("properties", "errors", "result")


def from_rows(model: type[M], using: str, rows: Iterable[MessageRow]) -> list[M]:
    """Return the rows as instances of `model`, without another query."""
    return _instances(model, using, map(_python_values, rows))


def _parsed(document: str) -> Any:
    """Return the document, or its text if SQLite accepted it and Python cannot parse it."""
    try:
        return json.loads(document)
    except (ValueError, RecursionError):
        return document


def _python_values(row: MessageRow) -> dict[str, Any]:
    values: dict[str, Any] = dict(zip(MessageRow._fields, row, strict=True))
    for name in _TIMES:
        values[name] = moment(values[name])
    for name in _DOCUMENTS:
        if values[name] is not None:
            values[name] = _parsed(values[name])
    values["blocked"] = bool(values["blocked"])
    return values


def _instances(model: type[M], using: str, rows: Iterable[dict[str, Any]]) -> list[M]:
    """Return what model.from_db() would return, three times faster unless it is customized.

    Building the instances is the largest part of the cost of a batch in Python.
    """
    if _runs_foreign_code(model):
        return [model.from_db(using, list(values), list(values.values())) for values in rows]
    return _plain_instances(model, using, rows)


def _plain_instances(model: type[M], using: str, rows: Iterable[dict[str, Any]]) -> list[M]:
    instances = []
    for values in rows:
        instance = model.__new__(model)
        instance.__dict__ = values
        instance._state = state = ModelState()
        state.adding = False
        state.db = using
        instances.append(instance)
    return instances


def runs_foreign_code() -> bool:
    """Return whether reading a message runs code of the project."""
    return _runs_foreign_code(get_model("Message"))


def _runs_foreign_code(model: type[models.Model]) -> bool:
    has_listeners = pre_init.has_listeners(model) or post_init.has_listeners(model)
    return has_listeners or _overrides_loading(model)


@cache
def _overrides_loading(model: type[models.Model]) -> bool:
    """Return whether from_db() or __init__() is overridden, for example in a project's proxy."""
    from_db: Any = model.from_db
    return (
        from_db.__func__ is not models.Model.from_db.__func__  # type: ignore[attr-defined]
        or model.__init__ is not models.Model.__init__
    )


def from_claimed_rows(model: type[M], using: str, rows: Iterable[MessageRow]) -> list[M]:
    """Return claimed rows as instances that hold their leases.

    An instance never reads its lease from the row again: refreshing an instance whose lease was
    lost must not give it the lease of the worker that holds the message now.
    """
    messages = from_rows(model, using, rows)
    for message in messages:
        message.claimed_token = message.lock_token  # type: ignore[attr-defined]
    return messages


def from_worker_rows(model: type[M], using: str, rows: Iterable[MessageRow]) -> list[M]:
    """Return claimed rows as instances. If foreign code raises, the instance has a `read_error`.

    The worker already has the lease, so the delivery fails with that error.
    """
    if not _runs_foreign_code(model):
        return from_claimed_rows(model, using, rows)
    return [
        call_guarded(
            lambda row=row: from_claimed_rows(model, using, [row])[0],  # type: ignore[misc]
            partial(_with_read_error, model, using, row),
        )
        for row in rows
    ]


def _with_read_error(model: type[M], using: str, row: MessageRow, error: BaseException) -> M:
    (message,) = _plain_instances(model, using, [_python_values(row)])
    message.claimed_token = row.lock_token  # type: ignore[attr-defined]
    message.read_error = error  # type: ignore[attr-defined]
    return message


_DEFAULTS = _python_values(MessageRow(id=0, queue="", state=""))
"""The column values of a new message before any of them is set."""
# A trigger sets it after the row is returned, so the attribute is deferred and read when used.
del _DEFAULTS["blocked"]


def from_stored(model: type[M], using: str, new: NewMessage, stored: Stored, *, now: int) -> M:
    """Return the instance of a message that was just stored, without reading its row."""
    values = {
        **_DEFAULTS,
        "id": stored.id,
        "queue": new.queue,
        "state": stored.state,
        "priority": new.priority,
        "line": stored.line,
        "visible_at": moment(new.visible_from(now)),
        "enqueued_at": moment(now),
        "expires_at": moment(stored.expires_at),
        "max_delivery_count": new.max_delivery_count,
        "message_id": new.message_id,
        "correlation_id": new.correlation_id,
        "reply_to": new.reply_to,
        "group_id": new.group_id,
        "subject": new.subject,
        "content_type": new.content_type,
        "properties": None if new.properties is None else json.loads(new.properties),
        "body": new.body,
        "unique_key": new.unique_key,
    }
    return _instances(model, using, [values])[0]


def duplicate_of(model: type[M], using: str, original: int, new: NewMessage) -> M:
    """Return the message that `new` repeats. Its other fields are read when they are used."""
    known = {"id": original, "queue": new.queue, "message_id": new.message_id, "body": new.body}
    message = model.from_db(using, tuple(known), list(known.values()))
    message.duplicate = True  # type: ignore[attr-defined]
    return message


BATCH = 1_000
"""Maximum rows that a redrive or a purge changes in one transaction."""


class Verbs(models.Manager[M]):
    """A manager whose verbs and queries use the same database.

    The routers' database for reading may be a replica that does not yet have what a verb has just
    written. Use `using()` to read from it.
    """

    def get_queryset(self) -> models.QuerySet[M]:
        return super().get_queryset().using(self.database)

    _queryset_class = GuardedQuerySet

    @property
    def database(self) -> str:
        """The alias of the database: that of db_manager(), or the routers' database for writing."""
        return self._db or router.db_for_write(self.model)

    @property
    def connection(self) -> Any:
        """The caller's connection to that database, after checking its schema."""
        connection = connections[self.database]
        check_schema(connection)
        return connection


def require_queue(connection: Any, queue: str) -> None:
    """Raise QueueNotFound if there is no such queue."""
    if not store.claim.queue_exists(connection, queue):
        raise QueueNotFound(queue, store.queues.queue_names(connection))


def lock_ms(lock_duration: Duration | None) -> int | None:
    """Return the duration of a lease in milliseconds, or None for the queue's."""
    return (
        None if lock_duration is None else milliseconds(lock_duration, "lock_duration", minimum=1)
    )
