"""The doors of the ORM that would go around the verbs: each names the verb to use instead."""

from collections.abc import Iterable, Mapping
from typing import Any, NoReturn, TypeVar

from django.db import models

M = TypeVar("M", bound=models.Model)

_SETTLES = (
    "complete(), abandon(), reject() or defer() of a claimed message, or "
    "DeadLetter.objects.redrive()"
)
_LEASES = "Message.objects.claim(), or renew() and the other verbs of a claimed message"
_ENQUEUE = "Message.objects.enqueue(), which alone decides it"
_CONFIGURE = "Queue.objects.configure()"

CREATE: Mapping[str, str] = {
    "Message": "Message.objects.enqueue() or enqueue_many()",
    "Queue": "Queue.objects.create_queue()",
    "Subscription": "Subscription.objects.subscribe()",
}

_MESSAGE = {
    "id": _ENQUEUE,
    "queue": "DeadLetter.objects.redrive(ids, into=…)",
    "state": _SETTLES,
    "priority": _ENQUEUE,
    "line": _ENQUEUE,
    "blocked": _ENQUEUE,
    "group_id": _ENQUEUE,
    "enqueued_at": _ENQUEUE,
    "expires_at": _ENQUEUE,
    "visible_at": "Message.objects.run_now() or cancel()",
    "locked_at": _LEASES,
    "locked_until": _LEASES,
    "lock_token": _LEASES,
    "locked_by": _LEASES,
    "delivery_count": _LEASES,
    "finished_at": _SETTLES,
    "kept_until": _SETTLES,
    "dead_letter_reason": _SETTLES,
    "dead_letter_description": _SETTLES,
}

COLUMNS: Mapping[str, Mapping[str, str]] = {
    "Message": _MESSAGE,
    "Queue": {
        "name": "Queue.objects.create_queue()",
        "kind": "Queue.objects.create_queue() or Subscription.objects.subscribe()",
        "paused": "pause() or resume() of the queue",
        **dict.fromkeys(
            (
                "ordering_mode",
                "lock_duration_ms",
                "max_delivery_count",
                "backoff_base_ms",
                "backoff_max_ms",
                "default_ttl_ms",
                "dead_letter_on_expire",
                "dedup_window_ms",
                "retain_completed_ms",
                "dlq_max_age_ms",
                "dlq_max_count",
                "dlq_max_bytes",
            ),
            _CONFIGURE,
        ),
    },
    "Subscription": dict.fromkeys(
        ("subscription", "topic", "filter"), "Subscription.objects.subscribe() or unsubscribe()"
    ),
}
"""By model and column; the other columns decide nothing and can be changed."""


class GuardedQuerySet(models.QuerySet[M]):
    """Reads like any other; creates nothing, and changes only what no rule depends on."""

    def create(self, **values: Any) -> NoReturn:
        refuse_create(self.model, "objects.create()")

    def bulk_create(self, *args: Any, **options: Any) -> NoReturn:
        refuse_create(self.model, "objects.bulk_create()")

    def update(self, **values: Any) -> int:
        _refuse_columns(self.model, "update()", values)
        return super().update(**values)


class GuardedModel(models.Model):
    """A model whose rows are written by verbs, and read again from where they were written."""

    class Meta:
        abstract = True

    def save(self, *args: Any, **options: Any) -> None:
        """Refuse: a new row is made by a verb, and a changed one could overwrite a lease."""
        if self._state.adding:
            refuse_create(type(self), "save()")
        fields = options.get("update_fields")
        if fields is None:
            raise TypeError(
                f"{type(self).__name__}: save() would overwrite what verbs have changed since the "
                "row was read. Use a verb, or name harmless columns in update_fields."
            )
        _refuse_columns(type(self), "save()", fields)
        super().save(*args, **options)

    def refresh_from_db(
        self, using: str | None = None, fields: Any = None, from_queryset: Any = None
    ) -> None:
        """Read the row again, by default from the database of the instance, not from a replica."""
        super().refresh_from_db(using or self._state.db, fields, from_queryset)


def refuse_create(model: type[models.Model], how: str) -> NoReturn:
    """Raise TypeError with the verb that makes a row of the model."""
    name = _name_of(model)
    raise TypeError(f"{name}: {how} would bypass the queue's rules. Use {CREATE[name]}.")


def _refuse_columns(model: type[models.Model], how: str, columns: Iterable[str]) -> None:
    name = _name_of(model)
    for column in columns:
        verb = COLUMNS[name].get(model._meta.pk.name if column == "pk" else column)
        if verb is not None:
            raise TypeError(
                f"{name}: {how} of {column!r} would bypass the queue's rules. Use {verb}."
            )


def _name_of(model: type[models.Model]) -> str:
    """Of the model with the table: a proxy has the same rules."""
    return (model._meta.concrete_model or model).__name__
