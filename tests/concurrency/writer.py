"""A process that enqueues, one message a transaction, until it reads a line.

It prints one JSON object: when each write began and ended, and every error.
"""

import json
import select
import sys
import time

import django


def main(queue: str) -> None:
    django.setup()
    from django_mqlite import enqueue  # noqa: PLC0415 - after setup

    writes, errors = [], []
    enqueue(queue, None)
    print("ready", flush=True)
    while not select.select([sys.stdin], [], [], 0)[0]:
        begun = time.time()
        try:
            enqueue(queue, None)
        except Exception as error:  # noqa: BLE001 - the test asks for them
            errors.append(repr(error))
        writes.append((begun, time.time()))
    print(json.dumps({"writes": writes, "errors": errors}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
