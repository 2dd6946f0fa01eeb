"""honker's queue: a loop of claim_batch and ack_batch of 64."""

import sys
import time

import honker

directory, jobs = sys.argv[1], int(sys.argv[2])
database = honker.open(f"{directory}/peer.db")
queue = database.queue("peer")
with database.transaction() as transaction:
    for _ in range(jobs):
        queue.enqueue({"body": "x" * 256}, tx=transaction)

began = time.perf_counter()
while claimed := queue.claim_batch("peer", 64):
    queue.ack_batch([job.id for job in claimed], "peer")
print(jobs / (time.perf_counter() - began))
