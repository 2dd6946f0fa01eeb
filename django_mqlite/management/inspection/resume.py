"""mqlite resume: paused queues give messages again."""

from collections.abc import Mapping
from typing import Any

from .output import Output
from .pausing import add_queues, set_paused

HELP = "Let claims from paused queues go on."

add_arguments = add_queues


def run(options: Mapping[str, Any], output: Output) -> None:
    """Resume the named queues."""
    set_paused(options, output, paused=False)
