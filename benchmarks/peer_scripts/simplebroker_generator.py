"""simplebroker's generator: by default one commit per message; tuned: batches of 64."""

import sys
import time

from simplebroker import Queue, resolve_config

directory, jobs, level = sys.argv[1], int(sys.argv[2]), sys.argv[3]
config, guarantee = None, "exactly_once"
if level != "default":
    tuned = {"BROKER_SYNC_MODE": level, "BROKER_GENERATOR_BATCH_SIZE": 64}
    config, guarantee = resolve_config(override=tuned), "at_least_once"
with Queue("peer", db_path=f"{directory}/peer.db", persistent=True, config=config) as queue:
    for _ in range(jobs):
        queue.write("x" * 256)
    began = time.perf_counter()
    count = sum(1 for _ in queue.read_generator(delivery_guarantee=guarantee))
    spent = time.perf_counter() - began
if count != jobs:
    raise SystemExit(f"read {count} messages, expected {jobs}")
print(jobs / spent)
