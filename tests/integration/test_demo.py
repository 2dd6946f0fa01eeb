"""The demo accounts for every order and reports each one that is missing."""

import re
import signal
import subprocess
import sys
from dataclasses import replace

import pytest

from example_project.demo.accounts import Evidence, MessageFact, audit
from example_project.demo.customers import Answer, Plan, Wish
from tests.support.source import ROOT

TEAPOT, UNICORN = 1, 3
PLAN = Plan(orders=3, poisonous=1, sold_out=1)


def run_demo(*arguments: str, seconds: float) -> tuple[int, str]:
    """Run the demo; return its exit code and output. TERM lets it end its own processes."""
    process = subprocess.Popen(
        [sys.executable, "-m", "example_project.demo", *arguments],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        output, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=30)
    return process.returncode, output


def numbers_of(output: str) -> dict[str, int]:
    """Return the rows of the last table: a name between bars, then a number."""
    rows = re.findall(r"^│ ([a-z -]+?) +│ +([\d,]+) │$", output, flags=re.MULTILINE)
    return {name: int(number.replace(",", "")) for name, number in rows}


def test_demo_accounts_for_every_order():
    code, output = run_demo("--orders", "120", seconds=60)

    assert code == 0, output
    numbers = numbers_of(output)
    del numbers["handled twice"]  # delivery is at least once: any number is right
    assert numbers == {
        "placed": 120,
        "rolled back": 4,
        "handled": 120,
        "dead-lettered": 2,
        "redriven": 2,
        "lost": 0,
        "messages without an order": 0,
    }


def test_demo_with_too_few_orders_is_refused():
    code, output = run_demo("--orders", "3", seconds=20)

    assert code == 2
    assert "--orders" in output


def answer(reference: str, *, order: int, card: str = "valid", status: int = 201) -> Answer:
    article = TEAPOT if status == 201 else UNICORN
    wish = Wish(reference=reference, customer=1, article=article, card=card)
    return Answer(wish=wish, status=status, order=order, message=order)


@pytest.fixture
def evidence() -> Evidence:
    """The evidence of a run without faults."""
    return Evidence(
        plan=PLAN,
        answers=[
            answer("a", order=1),
            answer("unicorn", order=2, status=409),
            answer("b", order=2),  # the id that was rolled back is given again
            answer("poison", order=3, card="declined"),
        ],
        unexpected_errors=[],
        order_ids={"a": 1, "b": 2, "poison": 3},
        payments=["a", "b", "poison"],
        messages=[
            MessageFact(reference="a", order=1, state="completed"),
            MessageFact(reference="b", order=2, state="completed"),
            MessageFact(reference="poison", order=3, state="completed"),
        ],
        handlings={"a": ["one", "two"], "b": ["two"], "poison": ["two"]},
        taken_from_stock=3,
        victim="one",
        leased_by_victim={"a"},
        dead_letters={"poison": ["example_project.shop.payment.CardDeclined"]},
        redriven=1,
    )


def test_audit_of_a_good_run_reports_no_faults(evidence):
    account = audit(evidence)

    assert account.faults == []
    assert account.placed == account.handled == 3
    assert account.handled_twice == account.rolled_back == account.dead_lettered == 1
    assert account.lost == account.messages_without_order == 0


def without(mapping: dict, key: str) -> dict:
    return {k: v for k, v in mapping.items() if k != key}


def stray(reference: str, order: int) -> MessageFact:
    return MessageFact(reference=reference, order=order, state="completed")


FALSIFIED = {
    "an accepted order is gone": lambda e: {"order_ids": without(e.order_ids, "a")},
    "an order was never handled": lambda e: {"handlings": without(e.handlings, "b")},
    "an order was not charged": lambda e: {"payments": ["a", "poison"]},
    "an order was charged twice": lambda e: {"payments": [*e.payments, "a"]},
    "a message is gone": lambda e: {"messages": e.messages[1:]},
    "a message is there twice": lambda e: {"messages": [*e.messages, e.messages[0]]},
    "a message is unfinished": lambda e: {
        "messages": [*e.messages[:2], replace(e.messages[2], state="scheduled")]
    },
    "a rolled-back message is left, with another order's id": lambda e: {
        "messages": [*e.messages, stray("unicorn", 2)]
    },
    "a rolled-back order is left": lambda e: {"order_ids": {**e.order_ids, "unicorn": 4}},
    "an order is nobody's": lambda e: {"order_ids": {**e.order_ids, "c": 4}},
    "too few were placed": lambda e: {"answers": e.answers[:-1]},
    "nothing was sold out": lambda e: {"answers": [e.answers[0], *e.answers[2:]]},
    "refused before anything was written": lambda e: {
        "answers": [replace(e.answers[1], message=0), e.answers[0], *e.answers[2:]]
    },
    "an effect happened twice": lambda e: {"taken_from_stock": 4},
    "a customer saw an error": lambda e: {"unexpected_errors": ["500"]},
    "a dead letter is missing": lambda e: {"dead_letters": {}, "redriven": 0},
    "a good order is a dead letter": lambda e: {
        "dead_letters": {**e.dead_letters, "b": ["example_project.shop.payment.CardDeclined"]},
        "redriven": 2,
    },
    "a dead letter without its error": lambda e: {"dead_letters": {"poison": []}},
    "a dead letter was not redriven": lambda e: {"redriven": 0},
    "the killed worker held nothing": lambda e: {"leased_by_victim": set()},
    "no worker took over": lambda e: {"handlings": {**e.handlings, "a": ["one"]}},
    "only one worker": lambda e: {
        "handlings": {reference: ["two"] for reference in e.handlings},
    },
}


@pytest.mark.parametrize("falsify", FALSIFIED.values(), ids=FALSIFIED.keys())
def test_audit_reports_a_fault(evidence, falsify):
    assert audit(replace(evidence, **falsify(evidence))).faults
