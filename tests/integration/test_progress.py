"""The progress of a burst is shown on a terminal, and nowhere else."""

import io
import sys

import pytest

from django_mqlite import enqueue_many
from django_mqlite.handlers import Handler
from django_mqlite.worker.options import WorkerOptions
from django_mqlite.worker.process import run_worker_process
from django_mqlite.worker.shutdown import Shutdown

pytestmark = pytest.mark.django_db(transaction=True)


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(
    ("stdout", "burst", "shown"),
    [(Terminal, True, True), (io.StringIO, True, False), (Terminal, False, False)],
    ids=["burst on a terminal", "burst in a pipe", "no burst"],
)
def test_progress_is_shown_for_bursts_on_terminals(queue, monkeypatch, stdout, burst, shown):
    enqueue_many("jobs", [1, 2])
    stream = stdout()
    monkeypatch.setattr(sys, "stdout", stream)
    handlers = {"jobs": Handler(queue="jobs", function=lambda message: None)}

    run_worker_process(
        WorkerOptions(using="default", queues=("jobs",), threads=1, burst=burst, max_messages=2),
        handlers,
        Shutdown(),
    )

    text = stream.getvalue()
    assert ("2/2" in text) == shown
    assert text.endswith("\r\x1b[K") == shown
