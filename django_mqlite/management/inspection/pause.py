"""mqlite pause: queues give no more messages."""

from collections.abc import Mapping
from typing import Any

from .output import Output
from .pausing import add_queues, set_paused

HELP = "Stop claims from queues; enqueueing goes on, and so do handlers that run."

add_arguments = add_queues


def run(options: Mapping[str, Any], output: Output) -> None:
    """Pause the named queues."""
    set_paused(options, output, paused=True)
