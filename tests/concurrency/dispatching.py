"""A worker or a reaper that dispatches schedules by a clock which the test moves.

The clock is the first eight bytes of a file that all processes map.
"""

import json
import logging
import mmap
import struct
import sys
from pathlib import Path

import django

POLL_INTERVAL = 0.005
"""The clock of the test is much faster than that of the machine, so waits are short."""


class SharedClock:
    def __init__(self, path: Path) -> None:
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 8)

    def now_ms(self) -> int:
        return struct.unpack("<q", self._map[:8])[0]

    def set(self, ms: int) -> None:
        self._map[:8] = struct.pack("<q", ms)


def main(kind: str, clock: str, schedules: str) -> None:
    django.setup()
    logging.disable()
    from django.conf import settings  # noqa: PLC0415 - after setup

    from django_mqlite.handlers import Handler  # noqa: PLC0415
    from django_mqlite.timing import use_clock  # noqa: PLC0415
    from django_mqlite.worker import reaper  # noqa: PLC0415
    from django_mqlite.worker.dispatcher import Dispatcher  # noqa: PLC0415
    from django_mqlite.worker.options import WorkerOptions  # noqa: PLC0415
    from django_mqlite.worker.process import run_worker_process  # noqa: PLC0415
    from django_mqlite.worker.shutdown import Shutdown  # noqa: PLC0415

    settings.MQLITE = {"SCHEDULES": json.loads(schedules)}
    reaper.MAX_POLL_INTERVAL = reaper.STANDALONE_POLL_INTERVAL = POLL_INTERVAL
    with use_clock(SharedClock(Path(clock))):
        if kind == "reaper":
            reaper.Reaper("default", Dispatcher.of_project("default")).run(Shutdown())
        options = WorkerOptions(using="default", queues=("jobs",), threads=1)
        handler = Handler(queue="jobs", function=lambda message: None)
        run_worker_process(options, {"jobs": handler}, Shutdown())


if __name__ == "__main__":
    main(*sys.argv[1:])
