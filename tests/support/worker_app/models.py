"""The effects of handlers, in the database of the queue."""

from typing import Any

from django.db import models

from django_mqlite.models import Message


class Effect(models.Model):
    """One row for each time that a handler did the work of a message."""

    message = models.BigIntegerField()
    queue = models.TextField()
    delivery_count = models.IntegerField()
    worker = models.TextField()

    class Meta:
        app_label = "worker_app"

    def __str__(self) -> str:
        return f"#{self.message} of {self.queue}, delivery {self.delivery_count}"


def effect_of(message: Message) -> dict[str, Any]:
    """Return the columns of a delivery's effect."""
    return {
        "message": message.pk,
        "queue": message.queue,
        "delivery_count": message.delivery_count,
        "worker": message.locked_by,
    }
