"""mqlite list: messages by queue, state, group, or by what is remembered of them."""

from argparse import ArgumentParser
from collections.abc import Mapping
from typing import Any

from django.core.management.base import CommandError

from django_mqlite.management.arguments import count
from django_mqlite.models import Message
from django_mqlite.types import State

from .documents import SUMMARY, summary
from .output import Output, shortened

HELP = "List messages by queue, state or group, or search for one."
HEADS = ("id", "queue", "state", "group", "subject", "deliveries", "enqueued", "reason")


def add_arguments(parser: ArgumentParser) -> None:
    """[QUEUE] [--state S] [--group G] [--search TEXT] [--limit N] [--after PLACE]"""
    parser.add_argument("queue", nargs="?", metavar="QUEUE", help="default: all")
    parser.add_argument("--state", type=_state, choices=[state.value for state in State])
    parser.add_argument("--group", metavar="ID", help="of this group")
    parser.add_argument(
        "--search",
        metavar="TEXT",
        help="with this sequence number, message id, correlation id or beginning of the subject",
    )
    parser.add_argument("--limit", type=count, default=50, metavar="N", help="so many a page (50)")
    parser.add_argument("--after", metavar="PLACE", help="the next page, as the last one named it")


def run(options: Mapping[str, Any], output: Output) -> None:
    """A page, and how to get the next one."""
    messages = Message.objects.db_manager(options["database"])
    try:
        page = messages.find(
            queue=options["queue"],
            state=options["state"],
            group=options["group"],
            text=options["search"],
            limit=options["limit"],
            after=options["after"],
        )
    except ValueError as error:
        raise CommandError(str(error)) from error
    rows = messages.using(messages.database).only(*SUMMARY).in_bulk(page.ids)
    found = [rows[id] for id in page.ids if id in rows]
    output.answer_table(
        {"messages": [summary(message) for message in found], "next": page.next},
        HEADS,
        [_row(message) for message in found],
        empty="There are no such messages.",
    )
    if page.next is not None and not output.as_json:
        output.stderr.write(f"There are more: --after {page.next}", style_func=str)


def _row(message: Message) -> list[Any]:
    return [
        message.pk,
        message.queue,
        message.state,
        message.group_id,
        shortened(message.subject),
        message.delivery_count,
        message.enqueued_at,
        message.dead_letter_reason,
    ]


def _state(text: str) -> str:
    """Return the stored value of a state; dead-lettered messages have three spellings."""
    return State.DEAD_LETTERED.value if text in ("dead", "dead-lettered") else text
