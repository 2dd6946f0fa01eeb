"""Huey's own consumer with eight threads; its default is WAL at FULL."""

import itertools
import os
import sys
import time

from huey import Huey
from huey.storage import SqliteStorage

directory, jobs, level = sys.argv[1], int(sys.argv[2]), sys.argv[3]


class AtLevel(SqliteStorage):
    def _create_connection(self):
        connection = super()._create_connection()
        connection.execute(f"PRAGMA synchronous = {level}")
        return connection


storage = SqliteStorage if level == "default" else AtLevel
huey = Huey("peer", storage_class=storage, filename=f"{directory}/peer.db", results=False)
done = itertools.count(1)
last = 0


@huey.task()
def noop(body):
    global last
    last = next(done)


for _ in range(jobs):
    noop("x" * 256)
consumer = huey.create_consumer(workers=8, periodic=False)
began = time.perf_counter()
consumer.start()
while last < jobs:
    time.sleep(0.001)
print(jobs / (time.perf_counter() - began), flush=True)
os._exit(0)
