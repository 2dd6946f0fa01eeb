"""Guards for the parts of the ORM that would bypass the verbs. Each error names the verb to use."""

from collections.abc import Iterable, Mapping
from dataclasses import fields
from functools import partial
from typing import Any, NoReturn, TypeVar

from django.db import DEFAULT_DB_ALIAS, models

from ..types import QueueConfig
from .any_text import read_any_text

M = TypeVar("M", bound=models.Model)

CREATE_VERBS: Mapping[str, str] = {
    "AccessKey": "AccessKey.objects.create_key()",
    "Message": "Message.objects.enqueue() or enqueue_many()",
    "MetaEntry": "MQLITE['SCHEDULES'] or @periodic for a recurring schedule",
    "Queue": "Queue.objects.create_queue()",
    "Subscription": "Subscription.objects.subscribe()",
}

SETTLE = (
    "complete(), abandon(), reject() or defer() of a claimed message, Message.objects.discard() "
    "or activate(), or DeadLetter.objects.redrive()"
)
CLAIM = "Message.objects.claim(), or renew() and the other verbs of a claimed message"
ENQUEUE = "Message.objects.enqueue(), which sets it once"
SUBSCRIBE = "Subscription.objects.subscribe() or unsubscribe()"

COLUMN_VERBS: Mapping[str, Mapping[str, str]] = {
    "AccessKey": {
        **dict.fromkeys(
            ("name", "digest", "rights", "created_at", "expires_at"),
            "AccessKey.objects.create_key(), which sets it once",
        ),
        "last_used_at": "AccessKey.objects.authenticate()",
        "revoked_at": "revoke() of the access key",
    },
    "Message": {
        **dict.fromkeys(
            (
                *("id", "priority", "line", "blocked", "group_id", "enqueued_at", "expires_at"),
                *(
                    "max_delivery_count",
                    "message_id",
                    "unique_key",
                    "content_type",
                    "properties",
                    "body",
                ),
            ),
            ENQUEUE,
        ),
        **dict.fromkeys(
            (
                *("locked_at", "locked_until", "lock_token", "locked_by", "delivery_count"),
                *("interruptions", "uncounted_retries"),
            ),
            CLAIM,
        ),
        **dict.fromkeys(("state", "finished_at", "kept_until"), SETTLE),
        **dict.fromkeys(
            ("dead_letter_reason", "dead_letter_description", "errors", "error_class", "result"),
            SETTLE,
        ),
        "progress": "set_progress() of a claimed message",
        "queue": "DeadLetter.objects.redrive(ids, into=…)",
        "visible_at": "Message.objects.run_now() or cancel()",
    },
    "MetaEntry": dict.fromkeys(("key", "value"), "pause(), resume() or run_now()"),
    "Queue": {
        **{field.name: "Queue.objects.configure()" for field in fields(QueueConfig)},
        **dict.fromkeys(("rate_tokens", "rate_updated_at"), CLAIM),
        "name": "Queue.objects.create_queue()",
        "kind": "Queue.objects.create_queue() or Subscription.objects.subscribe()",
        "paused": "pause() or resume() of the queue",
    },
    "Subscription": dict.fromkeys(("subscription", "topic", "filter", "expression"), SUBSCRIBE),
}
"""The verbs that change a column, by model and column. All other columns can be updated freely."""


class GuardedQuerySet(models.QuerySet[M]):
    """A query set that raises TypeError on creating rows or updating columns with a verb."""

    def _fetch_all(self) -> None:
        read_any_text(self.db, super()._fetch_all)

    def create(self, **values: Any) -> NoReturn:
        _refuse_create(self.model, "objects.create()")

    def bulk_create(self, *args: Any, **options: Any) -> NoReturn:
        _refuse_create(self.model, "objects.bulk_create()")

    def update(self, **values: Any) -> int:
        _refuse_columns(self.model, "update()", values)
        return super().update(**values)


class GuardedModel(models.Model):
    """A model whose rows are written by verbs, and reread from the database that has them."""

    class Meta:
        abstract = True

    def save(self, *args: Any, **options: Any) -> None:
        """Save only `update_fields` that no rule depends on; raise TypeError for anything else.

        Verbs create rows, and saving all columns of a row that was read could overwrite a lease.
        """
        if self._state.adding:
            _refuse_create(type(self), "save()")
        fields = options.get("update_fields")
        if fields is None:
            raise TypeError(
                f"{type(self).__name__}: save() would overwrite what verbs have changed since the "
                "row was read. Use a verb, or list columns that no rule uses in update_fields."
            )
        _refuse_columns(type(self), "save()", fields)
        super().save(*args, **options)

    def refresh_from_db(
        self, using: str | None = None, fields: Any = None, from_queryset: Any = None
    ) -> None:
        """Reread the row, by default from the database of the instance instead of a replica."""
        using = using or self._state.db
        reread = partial(super().refresh_from_db, using, fields, from_queryset)
        read_any_text(using or DEFAULT_DB_ALIAS, reread)


def _refuse_create(model: type[models.Model], how: str) -> NoReturn:
    """Raise a TypeError that names the verb that creates rows of the model."""
    name = _table_model_name(model)
    raise TypeError(f"{name}: {how} would bypass the queue's rules. Use {CREATE_VERBS[name]}.")


def _refuse_columns(model: type[models.Model], how: str, columns: Iterable[str]) -> None:
    name = _table_model_name(model)
    for column in columns:
        verb = COLUMN_VERBS[name].get(model._meta.pk.name if column == "pk" else column)
        if verb is not None:
            raise TypeError(
                f"{name}: {how} of {column!r} would bypass the queue's rules. Use {verb}."
            )


def _table_model_name(model: type[models.Model]) -> str:
    """Return the name of the model that has the table, because its rules apply to a proxy too."""
    return (model._meta.concrete_model or model).__name__
