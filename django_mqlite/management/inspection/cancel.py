"""mqlite cancel: scheduled messages are called off."""

from argparse import ArgumentParser
from collections.abc import Mapping
from typing import Any

from django_mqlite.models import Message

from .by_id import act_on, add_ids
from .confirm import add_yes, confirm_unless_yes
from .output import Output

HELP = "Delete scheduled messages that were never delivered."


def add_arguments(parser: ArgumentParser) -> None:
    """ID … [--yes]"""
    add_ids(parser)
    add_yes(parser)


def run(options: Mapping[str, Any], output: Output) -> None:
    """Ask, delete."""
    messages = Message.objects.db_manager(options["database"])
    count = len(set(options["ids"]))
    confirm_unless_yes(options, f"Delete {count} scheduled message(s) for good?", output)
    act_on(options["ids"], messages.cancel, messages, output, done="cancelled")
