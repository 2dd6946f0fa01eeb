"""mqlite run-now: schedules are brought forward."""

from collections.abc import Mapping
from typing import Any

from django_mqlite.models import Message

from .by_id import act_on, add_ids
from .output import Output

HELP = "Make scheduled messages due now, also those that rest after a failure."

add_arguments = add_ids


def run(options: Mapping[str, Any], output: Output) -> None:
    """Make the named messages due."""
    messages = Message.objects.db_manager(options["database"])
    act_on(options["ids"], messages.run_now, messages, output, done="due")
