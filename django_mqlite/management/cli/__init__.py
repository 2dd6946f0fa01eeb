"""The subcommands of `manage.py mqlite`: one entry each in a table."""

from . import act, delete, file, inspect, keys, queues, schedules
from .arguments import Subcommand

SUBCOMMANDS: dict[str, Subcommand] = {
    subcommand.name: subcommand
    for subcommand in (
        *inspect.SUBCOMMANDS,
        *act.SUBCOMMANDS,
        *delete.SUBCOMMANDS,
        *queues.SUBCOMMANDS,
        *schedules.SUBCOMMANDS,
        *keys.SUBCOMMANDS,
        *file.SUBCOMMANDS,
    )
}
