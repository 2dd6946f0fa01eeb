"""litequeue has no worker: a loop of pop and done. It sets NORMAL itself."""

import sys
import time

from litequeue import LiteQueue

directory, jobs, level = sys.argv[1], int(sys.argv[2]), sys.argv[3]
queue = LiteQueue(f"{directory}/peer.db")
for _ in range(jobs):
    queue.put("x" * 256)
if level != "default":
    queue.conn.execute(f"PRAGMA synchronous = {level}")

began = time.perf_counter()
while (message := queue.pop()) is not None:
    queue.done(message.message_id, claim_id=message.claim_id)
print(jobs / (time.perf_counter() - began))
