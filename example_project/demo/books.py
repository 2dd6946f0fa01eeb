"""Queries of the database through the models."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from django.db.models import Sum

from django_mqlite.models import DeadLetter, Message
from django_mqlite.types import State
from example_project.shop.models import Article, Customer, Handling, Order, Payment

from .accounts import MessageFact
from .customers import Plan, Wish

UNFINISHED = [State.ACTIVE, State.LOCKED, State.SCHEDULED, State.DEFERRED]


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseFact:
    """A live lease; `is_handled` is True if the handler of its message has finished."""

    reference: str
    worker: str
    is_handled: bool


def wishes_for(plan: Plan) -> list[Wish]:
    return plan.wishes(
        customers=list(Customer.objects.values_list("pk", flat=True)),
        articles=list(Article.objects.exclude(pk=unicorn()).values_list("pk", flat=True)),
        unicorn=unicorn(),
    )


def unicorn() -> int:
    """Return the article that is sold out."""
    return Article.objects.get(name="unicorn").pk


def stock() -> int:
    return Article.objects.aggregate(total=Sum("stock"))["total"]


def handled() -> int:
    return Handling.objects.values("order").distinct().count()


def dead() -> int:
    return DeadLetter.objects.count()


def is_drained() -> bool:
    return not Message.objects.filter(state__in=UNFINISHED).exists()


def at_work() -> int:
    """Return the number of messages that are locked or ready for a worker."""
    return Message.objects.filter(state__in=[State.ACTIVE, State.LOCKED]).count()


def are_finished(references: Sequence[str]) -> bool:
    """Return True if each of these messages is completed or a dead letter."""
    unfinished = Message.objects.filter(state__in=UNFINISHED, message_id__in=references)
    return not unfinished.exists()


def leases_of(pid: int) -> list[LeaseFact]:
    """Return the leases of the worker with this process id; its name is host:pid:random."""
    held = Message.objects.filter(state=State.LOCKED, locked_by__contains=f":{pid}:")
    handled = Handling.objects.filter(order__reference__in=[m.message_id for m in held])
    references = {str(ref) for ref in handled.values_list("order__reference", flat=True)}
    return [
        LeaseFact(
            reference=m.message_id or "?",
            worker=m.locked_by or "?",
            is_handled=m.message_id in references,
        )
        for m in held
    ]


def order_ids() -> dict[str, int]:
    return {str(reference): pk for reference, pk in Order.objects.values_list("reference", "pk")}


def payments() -> list[str]:
    """Return the order reference of each payment."""
    return [str(ref) for ref in Payment.objects.values_list("order__reference", flat=True)]


def correct_cards() -> int:
    """Replace each declined card by a valid one; return the number."""
    declined = Order.objects.filter(card=Order.Card.DECLINED)
    return declined.update(card=Order.Card.VALID)


def messages() -> list[MessageFact]:
    return [
        MessageFact(reference=m.message_id or "?", order=m.data["order"], state=m.state)
        for m in Message.objects.all()
    ]


def handlings() -> dict[str, list[str]]:
    workers = defaultdict(list)
    for reference, worker in Handling.objects.values_list("order__reference", "worker"):
        workers[str(reference)].append(worker)
    return dict(workers)


def errors_by_reference(letters: Iterable[DeadLetter]) -> dict[str, list[str]]:
    """Return the classes of the errors of each dead letter."""
    return {
        letter.message_id or "?": [error["class"] for error in letter.errors or []]
        for letter in letters
    }
