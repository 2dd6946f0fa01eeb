"""What the shop sells, to whom, and what became of each order."""

import uuid

from django.db import models
from django.db.models import F


class OutOfStock(Exception):
    """Nothing is left of the article."""


class Customer(models.Model):
    name = models.CharField(max_length=100)

    def __str__(self) -> str:
        return self.name


class Article(models.Model):
    name = models.CharField(max_length=100, unique=True)
    stock = models.PositiveIntegerField(default=0)

    def __str__(self) -> str:
        return self.name

    def take_one(self) -> None:
        """Take one from the stock, or raise OutOfStock."""
        left = Article.objects.filter(pk=self.pk, stock__gt=0)
        if not left.update(stock=F("stock") - 1):
            raise OutOfStock(f"no {self.name} left")


class Order(models.Model):
    class Status(models.TextChoices):
        PLACED = "placed"
        RESERVED = "reserved"

    # Chosen by whoever places the order, so that an order sent twice is placed once.
    reference = models.UUIDField(unique=True, default=uuid.uuid4)
    customer = models.ForeignKey(Customer, on_delete=models.PROTECT)
    article = models.ForeignKey(Article, on_delete=models.PROTECT)
    status = models.CharField(max_length=10, choices=Status.choices, default=Status.PLACED)
    placed_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return f"order {self.pk}"


class Handling(models.Model):
    """One run of the handler that succeeded: a second row for an order is a second run."""

    order = models.ForeignKey(Order, on_delete=models.CASCADE, related_name="handlings")
    worker = models.CharField(max_length=200)
    delivery_count = models.PositiveIntegerField()
    handled_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return f"{self.order} by {self.worker}"
