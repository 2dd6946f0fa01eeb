"""Customers who place orders over HTTP and record the responses."""

import json
import queue
import random
import uuid
from collections.abc import Container, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException, HTTPResponse
from http.cookies import SimpleCookie
from threading import Thread
from typing import Any
from urllib.parse import urlencode

THREADS = 4
ACCEPTED = 201
SOLD_OUT = 409


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """An order to place; the customer chooses its reference."""

    reference: str
    customer: int
    article: int
    card: str = "valid"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The shop's answer, with the ids of its rows, which may have been rolled back."""

    wish: Wish
    status: int
    order: int
    message: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The number of orders to place, by kind."""

    orders: int
    poisonous: int
    sold_out: int

    @classmethod
    def of(cls, orders: int) -> "Plan":
        """Plan a declined card for one order in 50, and one order of a unicorn per 25 others."""
        return cls(orders=orders, poisonous=max(orders // 50, 1), sold_out=max(orders // 25, 1))

    def wishes(
        self, *, customers: Sequence[int], articles: Sequence[int], unicorn: int
    ) -> list[Wish]:
        """Return the orders in a fixed sequence, so that a run can be repeated."""
        rng = random.Random(1)
        ordered = [rng.choice(articles) for _ in range(self.orders)]
        cards = ["declined"] * self.poisonous + ["valid"] * (self.orders - self.poisonous)
        ordered += [unicorn] * self.sold_out
        cards += ["valid"] * self.sold_out
        wishes = [
            Wish(
                reference=str(uuid.uuid4()),
                customer=rng.choice(customers),
                article=article,
                card=card,
            )
            for article, card in zip(ordered, cards, strict=True)
        ]
        rng.shuffle(wishes)
        return wishes


@dataclass(slots=True)
class Customers:
    """Threads that place the orders, each over its own persistent connection."""

    port: int
    answers: list[Answer] = field(default_factory=list)
    unexpected_errors: list[str] = field(default_factory=list)
    _wishes: "queue.SimpleQueue[Wish]" = field(default_factory=queue.SimpleQueue)
    _threads: list[Thread] = field(default_factory=list)

    def start(self, wishes: Iterable[Wish]) -> None:
        """Place these orders too, even while others are being placed."""
        for wish in wishes:
            self._wishes.put(wish)
        threads = [Thread(target=self._order, daemon=True) for _ in range(THREADS)]
        for thread in threads:
            thread.start()
        self._threads += threads

    @property
    def are_done(self) -> bool:
        return not any(thread.is_alive() for thread in self._threads)

    def count(self, status: int) -> int:
        return sum(answer.status == status for answer in list(self.answers))

    def _order(self) -> None:
        try:
            with closing(Visit(self.port)) as visit:
                while True:
                    self.answers.append(visit.place(self._wishes.get_nowait()))
        except queue.Empty:
            return
        except (OSError, HTTPException, ValueError, KeyError) as error:
            self.unexpected_errors.append(f"{type(error).__name__}: {error}")


class Visit:
    """One customer's connection, with the cookie that Django's CSRF protection requires."""

    def __init__(self, port: int) -> None:
        self._connection = HTTPConnection("127.0.0.1", port, timeout=30)
        response, _ = self._request("GET", "/", expected=(200,))
        token = SimpleCookie(response.headers["Set-Cookie"])["csrftoken"].value
        self._headers = {
            "Accept": "application/json",
            "Content-Type": "application/x-www-form-urlencoded",
            "Cookie": f"csrftoken={token}",
            "X-CSRFToken": token,
        }

    def place(self, wish: Wish) -> Answer:
        form = {
            "reference": wish.reference,
            "customer": wish.customer,
            "article": wish.article,
            "card": wish.card,
        }
        response, body = self._request(
            "POST", "/orders/", urlencode(form), self._headers, expected=(ACCEPTED, SOLD_OUT)
        )
        facts: dict[str, Any] = json.loads(body)
        written = facts["undone"] if response.status == SOLD_OUT else facts
        return Answer(
            wish=wish, status=response.status, order=written["order"], message=written["message"]
        )

    def close(self) -> None:
        self._connection.close()

    def _request(self, *arguments: Any, expected: Container[int]) -> tuple[HTTPResponse, bytes]:
        self._connection.request(*arguments)
        response = self._connection.getresponse()
        body = response.read()
        if response.status not in expected:
            raise ValueError(f"the shop responded with {response.status}: {body[:200]!r}")
        return response, body
