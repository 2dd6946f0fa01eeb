"""A verb for messages that are named one by one."""

import sys
from argparse import ArgumentParser
from collections.abc import Callable, Sequence

from django_mqlite.managers import MessageManager

from .arguments import count
from .output import Output, lines


def add_ids(parser: ArgumentParser) -> None:
    """ID …"""
    parser.add_argument("ids", type=count, nargs="+", metavar="ID")


def act_on(
    ids: Sequence[int],
    act: Callable[[int], bool],
    messages: MessageManager,
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
