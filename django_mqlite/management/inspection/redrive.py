"""mqlite redrive: dead letters go back to work."""

from collections.abc import Mapping
from typing import Any

from django_mqlite.models import DeadLetter

from .arguments import add_selection, check_selection
from .output import Output
from .selection import checked_ids

HELP = "Put dead letters of a queue back to work: all, some by age or number, or those named."

add_arguments = add_selection


def run(options: Mapping[str, Any], output: Output) -> None:
    """Those named, else all within the bounds."""
    check_selection(options)
    queue = options["queue"]
    letters = DeadLetter.objects.db_manager(options["database"])
    if options["ids"]:
        done = letters.redrive(checked_ids(letters, queue, options["ids"]))
    else:
        done = letters.redrive_queue(
            queue, limit=options["limit"], older_than=options["older_than"]
        )
    output.answer({"queue": queue, "redriven": done}, f"Redriven from queue {queue}: {done}")
