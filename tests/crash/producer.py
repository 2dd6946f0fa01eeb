"""A process that places orders, each with its message, until it is killed at a random point.

In each round, a forked child kills itself with SIGKILL in a random statement, at a random step of
SQLite's virtual machine from there. The parent has no connection when it forks; afterwards it
queries the file and prints a report as one line of JSON.
"""

import json
import os
import random
import signal
import sys
import traceback
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import django
from django.db import connection, transaction

from tests.support.files import rows

ORDERS_A_ROUND = 20


@dataclass(frozen=True)
class Death:
    """A statement of the round, and the number of steps after its start."""

    statement: int
    step: int


def random_death(chance: random.Random) -> Death:
    steps = chance.choice([3, 12, 400])
    return Death(chance.randrange(2 * ORDERS_A_ROUND), chance.randrange(1, steps + 1))


REPORT = {
    "orders": "SELECT count(*) FROM shop_order",
    "messages without order": """
        SELECT m.id FROM mqlite_messages AS m
         WHERE NOT EXISTS (SELECT 1 FROM shop_order WHERE name = m.subject)
    """,
    "orders without message": """
        SELECT o.name FROM shop_order AS o
         WHERE NOT EXISTS (SELECT 1 FROM mqlite_messages WHERE subject = o.name)
    """,
    "integrity": "PRAGMA integrity_check",
}


def place_orders(round_number: int, together: bool, death: Death, acknowledge: Path) -> None:
    from django_mqlite import enqueue  # noqa: PLC0415 - after setup

    connection.ensure_connection()
    with (
        connection.execute_wrapper(killer(death)),
        acknowledge.open("a", buffering=1, encoding="utf-8") as acknowledged,
    ):
        for number in range(ORDERS_A_ROUND):
            name = f"order {round_number}.{number}"
            with transaction.atomic() if together else nullcontext():
                if number % 2:
                    enqueue("orders", None, subject=name)
                with connection.cursor() as cursor:
                    cursor.execute("INSERT INTO shop_order (name) VALUES (%s)", [name])
                if not number % 2:
                    enqueue("orders", None, subject=name)
            acknowledged.write(f"{name}\n")
    os.kill(os.getpid(), signal.SIGKILL)


def killer(death: Death) -> Callable[..., Any]:
    statements = count()
    steps = count(1)

    def die() -> int:
        if next(steps) == death.step:
            os.kill(os.getpid(), signal.SIGKILL)
        return 0

    def execute(run: Callable[..., Any], *arguments: Any) -> Any:
        if next(statements) == death.statement:
            assert connection.connection is not None
            connection.connection.set_progress_handler(die, 1)
        return run(*arguments)

    return execute


def run_round(path: Path, number: int, together: bool, death: Death) -> dict[str, object]:
    acknowledge = path.with_suffix(".acknowledged")
    child = os.fork()
    if child == 0:
        try:
            place_orders(number, together, death, acknowledge)
        except BaseException:  # noqa: BLE001 - a child must never return into the parent's code
            traceback.print_exc()
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    report = {name: rows(path, sql) for name, sql in REPORT.items()}
    names = {name for (name,) in rows(path, "SELECT name FROM shop_order")}
    acknowledged = (
        acknowledge.read_text(encoding="utf-8").splitlines() if acknowledge.exists() else []
    )
    return {
        "killed": os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL,
        "acknowledged": len(acknowledged),
        "acknowledged and lost": [name for name in acknowledged if name not in names],
        **report,
    }


def main(path: str, rounds: str, mode: str, seed: str) -> None:
    django.setup()
    chance = random.Random(int(seed))
    for number in range(int(rounds)):
        report = run_round(Path(path), number, mode == "together", random_death(chance))
        print(json.dumps(report), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
