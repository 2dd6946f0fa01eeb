"""Placing orders: an order and its event commit together, or neither does."""

import uuid

from django.contrib import messages
from django.db import IntegrityError, transaction
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_POST, require_safe

from django_mqlite import enqueue

from .forms import OrderForm
from .models import Article, Customer, Order
from .payment import CardDeclined, charge


@require_POST
def place_order(request: HttpRequest) -> HttpResponse:
    form = OrderForm(request.POST)
    if not form.is_valid():
        problems = [str(text) for texts in form.errors.values() for text in texts]
        return _answer(request, 400, " ".join(problems), errors=form.errors)
    card = form.cleaned_data.pop("card")
    try:
        with transaction.atomic():
            order = Order.objects.create(**form.cleaned_data)
            message = enqueue(
                "order-events",
                {"order": order.pk},
                group_id=f"customer-{order.customer_id}",
                message_id=str(order.reference),
            )
            charge(card, order, message)
    except CardDeclined as declined:
        undone = {"order": declined.order.pk, "message": declined.message.pk}
        return _answer(request, 402, "The card was declined.", undone=undone)
    except IntegrityError:
        return _answer(request, 409, "This order was placed before.")
    return _answer(request, 201, "Thank you.", order=order.pk, message=message.pk)


@require_safe
def front(request: HttpRequest) -> HttpResponse:
    orders = Order.objects.select_related("customer", "article").prefetch_related("handlings")
    context = {
        "articles": Article.objects.order_by("pk"),
        "customers": Customer.objects.order_by("pk"),
        "orders": orders.order_by("-pk")[:15],
        "reference": uuid.uuid4(),
    }
    return render(request, "shop/front.html", context)


def _answer(request: HttpRequest, status: int, text: str, **facts: object) -> HttpResponse:
    """JSON for a program; a person is led back to the front page, where the text appears."""
    if not request.accepts("text/html"):
        return JsonResponse({"text": text, **facts}, status=status)
    level = messages.SUCCESS if status < 400 else messages.ERROR
    messages.add_message(request, level, text)
    return redirect("front")
