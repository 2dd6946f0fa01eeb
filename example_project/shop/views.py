"""Place orders: an order, its stock and its message commit together, or none of them does."""

import uuid

from django.contrib import messages
from django.db import IntegrityError, transaction
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_POST, require_safe

from django_mqlite import enqueue

from .forms import OrderForm
from .models import Article, Customer, Order, SoldOut


@require_POST
def place_order(request: HttpRequest) -> HttpResponse:
    form = OrderForm(request.POST)
    if not form.is_valid():
        problems = [str(text) for texts in form.errors.values() for text in texts]
        return _answer(request, 400, " ".join(problems), errors=form.errors)
    written: dict[str, int] = {}
    try:
        with transaction.atomic():
            order = Order.objects.create(**form.cleaned_data)
            message = enqueue(
                "order-events",
                {"order": order.pk},
                group_id=f"customer-{order.customer_id}",
                message_id=str(order.reference),
            )
            written = {"order": order.pk, "message": message.pk}
            # Raises SoldOut: the order and its message are rolled back.
            order.article.take_one()
    except SoldOut as error:
        return _answer(request, 409, str(error), undone=written)
    except IntegrityError:
        return _answer(request, 409, "This order was placed before.")
    return _answer(request, 201, "Thank you.", **written)


@require_safe
def front(request: HttpRequest) -> HttpResponse:
    orders = Order.objects.select_related("customer", "article").prefetch_related("handlings")
    context = {
        "articles": Article.objects.order_by("pk"),
        "cards": Order.Card.choices,
        "customers": Customer.objects.order_by("pk"),
        "orders": orders.order_by("-pk")[:15],
        "reference": uuid.uuid4(),
    }
    return render(request, "shop/front.html", context)


def _answer(request: HttpRequest, status: int, text: str, **facts: object) -> HttpResponse:
    """Return JSON to a program; redirect a person to the front page, which shows the text."""
    if not request.accepts("text/html"):
        return JsonResponse({"text": text, **facts}, status=status)
    level = messages.SUCCESS if status < 400 else messages.ERROR
    messages.add_message(request, level, text)
    return redirect("front")
