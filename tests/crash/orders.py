"""Places orders until it is killed: an order and its message in one transaction, then the ids.

`python -m tests.crash.orders FILE`
"""

import itertools
import sys
from pathlib import Path

import django


def place_orders(acknowledge: Path) -> None:
    from django.db import connection, transaction  # noqa: PLC0415 - after setup

    from django_mqlite import enqueue  # noqa: PLC0415 - after setup

    with acknowledge.open("a", buffering=1) as acknowledged:
        for queue in itertools.cycle(["jobs", "atomic"]):
            with transaction.atomic():
                message = enqueue(queue, {})
                with connection.cursor() as cursor:
                    cursor.execute("INSERT INTO shop_order (message) VALUES (%s)", [message.pk])
            acknowledged.write(f"{message.pk}\n")


if __name__ == "__main__":
    django.setup()
    place_orders(Path(sys.argv[1]))
