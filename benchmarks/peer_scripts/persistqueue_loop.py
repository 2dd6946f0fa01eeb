"""persist-queue's SQLiteAckQueue has no worker: a loop of get and ack."""

import sys
import time

from persistqueue import SQLiteAckQueue


class AtLevel(SQLiteAckQueue):
    def _new_db_connection(self, path, multithreading, timeout):
        connection = super()._new_db_connection(path, multithreading, timeout)
        connection.execute(f"PRAGMA synchronous = {level}")
        return connection


directory, jobs, level = sys.argv[1], int(sys.argv[2]), sys.argv[3]
queue = (SQLiteAckQueue if level == "default" else AtLevel)(directory)
for _ in range(jobs):
    queue.put("x" * 256)

began = time.perf_counter()
for _ in range(jobs):
    queue.ack(queue.get())
print(jobs / (time.perf_counter() - began))
