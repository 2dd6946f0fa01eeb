"""Articles, customers, orders and payments of the shop."""

import uuid

from django.db import models
from django.db.models import F


class SoldOut(Exception):
    """The article is out of stock."""


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
        """Take one from the stock, or raise SoldOut."""
        left = Article.objects.filter(pk=self.pk, stock__gt=0)
        if not left.update(stock=F("stock") - 1):
            raise SoldOut(f"Sorry, no {self.name} is left.")


class Order(models.Model):
    class Status(models.TextChoices):
        PLACED = "placed"
        PAID = "paid"

    class Card(models.TextChoices):
        VALID = "valid"
        DECLINED = "declined"

    # Chosen by the customer, so that an order that is sent twice is placed once.
    reference = models.UUIDField(unique=True, default=uuid.uuid4)
    customer = models.ForeignKey(Customer, on_delete=models.PROTECT)
    article = models.ForeignKey(Article, on_delete=models.PROTECT)
    card = models.CharField(max_length=10, choices=Card.choices, default=Card.VALID)
    status = models.CharField(max_length=10, choices=Status.choices, default=Status.PLACED)
    placed_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return f"order {self.pk}"


class Payment(models.Model):
    """A payment in the records of the payment provider."""

    idempotency_key = models.CharField(max_length=100, unique=True)
    order = models.ForeignKey(Order, on_delete=models.CASCADE, related_name="payments")

    def __str__(self) -> str:
        return f"payment for {self.order}"


class Handling(models.Model):
    """A successful run of the handler: a second row for an order is a second run."""

    order = models.ForeignKey(Order, on_delete=models.CASCADE, related_name="handlings")
    worker = models.CharField(max_length=200)
    delivery_count = models.PositiveIntegerField()
    handled_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return f"{self.order} by {self.worker}"
