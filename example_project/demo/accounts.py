"""An audit that compares the shop's responses to the customers with the database.

The two sides are independent. Orders are matched by the reference that the customer chose: the id
of a rolled-back order is reused for the next order, so a message left behind by the rollback would
seem to belong to that order.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from .customers import ACCEPTED, SOLD_OUT, Answer, Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageFact:
    """A message at the end of the day."""

    reference: str
    order: int
    state: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """The data to compare; orders are identified by their reference."""

    plan: Plan
    # From the customers.
    answers: Sequence[Answer]
    unexpected_errors: Sequence[str]
    # From the database.
    order_ids: Mapping[str, int]
    payments: Sequence[str]
    messages: Sequence[MessageFact]
    handlings: Mapping[str, Sequence[str]]
    taken_from_stock: int
    # From the run: the killed worker with its leases, and the dead letters with their errors.
    victim: str
    leased_by_victim: set[str]
    dead_letters: Mapping[str, Sequence[str]]
    redriven: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """The counts in the table, and the faults."""

    placed: int
    rolled_back: int
    handled: int
    handled_twice: int
    dead_lettered: int
    redriven: int
    lost: int
    messages_without_order: int
    faults: Sequence[str] = field(default_factory=tuple)


def audit(evidence: Evidence) -> Account:
    """Return the counts and all faults."""
    accepted = _references(evidence, ACCEPTED)
    sold_out = _references(evidence, SOLD_OUT)
    return Account(
        placed=len(accepted),
        rolled_back=len(sold_out - set(evidence.order_ids)),
        handled=len(evidence.handlings),
        handled_twice=sum(len(workers) > 1 for workers in evidence.handlings.values()),
        dead_lettered=len(evidence.dead_letters),
        redriven=evidence.redriven,
        lost=len(_lost(evidence, accepted)),
        messages_without_order=len(_strays(evidence)),
        faults=[
            *_faults_of_orders(evidence, accepted, sold_out),
            *_faults_of_payments(evidence),
            *_faults_of_messages(evidence, accepted),
            *_faults_of_dead_letters(evidence),
            *_faults_of_recovery(evidence),
        ],
    )


def _references(evidence: Evidence, status: int) -> set[str]:
    return {answer.wish.reference for answer in evidence.answers if answer.status == status}


def _lost(evidence: Evidence, accepted: set[str]) -> set[str]:
    """Return accepted orders that are missing or were not handled completely."""
    completed = {m.reference for m in evidence.messages if m.state == "completed"}
    return accepted - (
        set(evidence.order_ids) & set(evidence.payments) & set(evidence.handlings) & completed
    )


def _strays(evidence: Evidence) -> list[MessageFact]:
    return [m for m in evidence.messages if evidence.order_ids.get(m.reference) != m.order]


def _faults_of_orders(evidence: Evidence, accepted: set[str], sold_out: set[str]) -> Iterator[str]:
    plan, orders = evidence.plan, set(evidence.order_ids)
    yield from evidence.unexpected_errors
    if len(accepted) != plan.orders:
        yield f"{len(accepted)} orders were accepted instead of {plan.orders}"
    if len(sold_out) != plan.sold_out:
        yield f"{len(sold_out)} orders were sold out instead of {plan.sold_out}"
    if not all(answer.order and answer.message for answer in evidence.answers):
        yield "an order was refused before anything was written, so its rollback proves nothing"
    if lost := _lost(evidence, accepted):
        yield f"{len(lost)} orders are lost: {_examples(lost)}"
    if left := orders & sold_out:
        yield f"{len(left)} sold-out orders were not rolled back: {_examples(left)}"
    if unknown := orders - accepted - sold_out:
        yield f"{len(unknown)} orders were not placed by a customer: {_examples(unknown)}"
    if evidence.taken_from_stock != len(orders):
        yield f"{evidence.taken_from_stock} articles were taken for {len(orders)} orders"


def _faults_of_payments(evidence: Evidence) -> Iterator[str]:
    charged = Counter(evidence.payments)
    if twice := {reference for reference, count in charged.items() if count > 1}:
        yield f"{len(twice)} orders were charged twice: {_examples(twice)}"


def _faults_of_messages(evidence: Evidence, accepted: set[str]) -> Iterator[str]:
    if strays := _strays(evidence):
        yield f"{len(strays)} messages have no order: {_examples({m.reference for m in strays})}"
    count = Counter(m.reference for m in evidence.messages)
    if wrong := {reference for reference in accepted if count[reference] != 1}:
        yield f"{len(wrong)} orders do not have exactly one message: {_examples(wrong)}"
    if unfinished := {m.reference for m in evidence.messages if m.state != "completed"}:
        yield f"{len(unfinished)} messages are not completed: {_examples(unfinished)}"


def _faults_of_dead_letters(evidence: Evidence) -> Iterator[str]:
    poisonous = {
        answer.wish.reference
        for answer in evidence.answers
        if answer.status == ACCEPTED and answer.wish.card == "declined"
    }
    dead = evidence.dead_letters
    if len(poisonous) != evidence.plan.poisonous:
        yield f"{len(poisonous)} poisonous orders were placed instead of {evidence.plan.poisonous}"
    if missing := poisonous - set(dead):
        yield f"{len(missing)} dead letters are missing: {_examples(missing)}"
    if wrong := set(dead) - poisonous:
        yield f"{len(wrong)} dead letters are unexpected: {_examples(wrong)}"
    if silent := {ref for ref, errors in dead.items() if not _names_the_cause(errors)}:
        yield f"{len(silent)} dead letters do not name their cause: {_examples(silent)}"
    if evidence.redriven != len(dead):
        yield f"{evidence.redriven} of {len(dead)} dead letters were redriven"


def _names_the_cause(errors: Sequence[str]) -> bool:
    return any(error.endswith(".CardDeclined") for error in errors)


def _faults_of_recovery(evidence: Evidence) -> Iterator[str]:
    if not evidence.leased_by_victim:
        yield "the killed worker held no lease, so the recovery proves nothing"
    for reference in evidence.leased_by_victim:
        if set(evidence.handlings.get(reference, ())) <= {evidence.victim}:
            yield f"no worker took over from the killed worker: {reference}"
    workers = {worker for workers in evidence.handlings.values() for worker in workers}
    if len(workers) < 2:
        yield "only one worker handled messages"


def _examples(references: set[str]) -> str:
    shown = sorted(references)[:3]
    return ", ".join(shown) + (" …" if len(references) > len(shown) else "")
