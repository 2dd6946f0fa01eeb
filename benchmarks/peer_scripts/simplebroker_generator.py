"""simplebroker's generator; by default a commit for each message, tuned in batches."""

import sys
import time

from simplebroker import Queue

directory, jobs, level = sys.argv[1], int(sys.argv[2]), sys.argv[3]
with Queue("peer", db_path=f"{directory}/peer.db", persistent=True) as queue:
    for _ in range(jobs):
        queue.write("x" * 256)
    guarantee = "exactly_once" if level == "default" else "at_least_once"
    began = time.perf_counter()
    count = sum(1 for _ in queue.read_generator(delivery_guarantee=guarantee))
    spent = time.perf_counter() - began
if count != jobs:
    raise SystemExit(f"{jobs} were to be read, not {count}")
print(jobs / spent)
