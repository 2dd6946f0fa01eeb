"""What handlers have done, in the queue's own database."""

from django.db import models


class Effect(models.Model):
    """One row for each time the work of a message was done."""

    message = models.BigIntegerField()
    queue = models.TextField()
    delivery_count = models.IntegerField()
    worker = models.TextField()

    class Meta:
        app_label = "worker_app"

    def __str__(self) -> str:
        return f"#{self.message} of {self.queue}, delivery {self.delivery_count}"
