"""mqlite release: leases are ended by hand."""

from argparse import ArgumentParser
from collections.abc import Mapping
from typing import Any

from django_mqlite.models import Message

from .by_id import act_on, add_ids
from .confirm import add_yes, confirm_unless_yes
from .output import Output

HELP = "End the leases of messages, so that they can be claimed again; their holders lose them."


def add_arguments(parser: ArgumentParser) -> None:
    """ID … [--reason TEXT] [--yes]"""
    add_ids(parser)
    add_yes(parser)
    parser.add_argument(
        "--reason", default="released by hand", metavar="TEXT", help="remembered in its errors"
    )


def run(options: Mapping[str, Any], output: Output) -> None:
    """The leases are those of the moment before the question; a newer one is left alone."""
    messages = Message.objects.db_manager(options["database"])
    found = messages.using(messages.database).only("lock_token").in_bulk(options["ids"])
    seen = {id: message.lease_fingerprint or "" for id, message in found.items()}
    question = (
        f"End the lease of {len(set(options['ids']))} message(s)? A handler that still runs is not "
        "stopped, and the message may be handled twice."
    )
    confirm_unless_yes(options, question, output)

    def release(id: int) -> bool:
        return messages.release(id, seen=seen.get(id, ""), reason=options["reason"])

    act_on(options["ids"], release, messages, output, done="released")
