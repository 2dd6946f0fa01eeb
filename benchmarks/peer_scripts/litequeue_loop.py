"""litequeue has no worker: a loop of pop and done."""

import sys
import time

from litequeue import LiteQueue

directory, jobs = sys.argv[1], int(sys.argv[2])
queue = LiteQueue(f"{directory}/peer.db")
for _ in range(jobs):
    queue.put("x" * 256)

began = time.perf_counter()
while (message := queue.pop()) is not None:
    queue.done(message.message_id, claim_id=message.claim_id)
print(jobs / (time.perf_counter() - began))
