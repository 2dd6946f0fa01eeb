"""A process that enqueues as fast as possible for some seconds and prints waits and errors.

Not a scenario: `writers` and `purge` start several. Each write is a transaction of the application.
"""

import json
import sys
import time

import django


def main(seconds: float) -> None:
    django.setup()
    from django.db import OperationalError, connection, transaction

    from django_mqlite import enqueue

    connection.ensure_connection()
    print("ready", flush=True)
    sys.stdin.readline()
    waits, errors, end = [], 0, time.monotonic() + seconds
    while time.monotonic() < end:
        began = time.perf_counter()
        try:
            with transaction.atomic():
                enqueue("noop", b"x" * 256)
        except OperationalError:
            errors += 1
        waits.append(round((time.perf_counter() - began) * 1000, 3))
    print(json.dumps({"waits": waits, "errors": errors}), flush=True)


if __name__ == "__main__":
    main(float(sys.argv[1]))
