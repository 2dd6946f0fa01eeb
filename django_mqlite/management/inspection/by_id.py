"""Messages that are named one by one."""

import sys
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Callable, Sequence
from typing import Any

from django.core.management.base import CommandError

from django_mqlite.management.arguments import count
from django_mqlite.managers import MessageManager

from .output import Output, lines

MOST_NAMED = 10


def add_ids(parser: ArgumentParser) -> None:
    """ID …"""
    parser.add_argument("ids", type=count, nargs="+", metavar="ID")


def add_id(parser: ArgumentParser) -> None:
    """ID"""
    parser.add_argument("id", metavar="ID", help="a sequence number, or a message id")


def sequence_number(messages: MessageManager[Any], said: str) -> int:
    """Return the sequence number: digits are one, anything else is a message id.

    CommandError where no message has that id, or several have it, as the copies of a topic do.
    """
    if said.isascii() and said.isdecimal():
        try:
            return count(said)
        except ArgumentTypeError as error:
            raise CommandError(str(error)) from error
    same = messages.using(messages.database).filter(message_id=said)
    found = same.only("queue")[: MOST_NAMED + 1]
    if len(found) == 1:
        return int(found[0].pk)
    if found:
        more = ", …" if len(found) > MOST_NAMED else ""
        named = ", ".join(map(str, found[:MOST_NAMED])) + more
        raise CommandError(f"Several messages have the message id {said!r}: {named}. Name one so.")
    raise CommandError(
        f"No message has the message id {said!r} any more, if one had it. What became of one that "
        "is gone can only be asked by its sequence number."
    )


def act_on(
    ids: Sequence[int],
    act: Callable[[int], bool],
    messages: MessageManager[Any],
    output: Output,
    *,
    done: str,
) -> None:
    """`act` on each; exit code 1 where it could not, with what is the matter with that message."""
    results = {id: act(id) for id in dict.fromkeys(ids)}
    refused = {id: messages.explain(id) for id, acted in results.items() if not acted}
    succeeded = [id for id, acted in results.items() if acted]
    document = {
        done: succeeded,
        "refused": [
            {"id": id, "state": why.facts["state"], "code": why.code, "text": why.text}
            for id, why in refused.items()
        ],
    }
    said = [f"#{id}: {done}" for id in succeeded]
    said += [
        f"#{id}: not {done}, for it is {why.facts['state'] or 'not there'}; {lines(why.text)}"
        for id, why in refused.items()
    ]
    output.answer(document, "\n".join(said))
    if refused:
        sys.exit(1)
