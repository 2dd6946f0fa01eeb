"""mqlite subscribe: a topic's messages are copied into a queue."""

from argparse import ArgumentParser
from collections.abc import Mapping
from typing import Any

from django.core.management.base import CommandError

from django_mqlite.models import Subscription

from .output import Output

HELP = "Subscribe a queue to a topic, or change the filter of its subscription."


def add_arguments(parser: ArgumentParser) -> None:
    """TOPIC SUBSCRIPTION [--filter EXPRESSION]"""
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument("subscription", metavar="SUBSCRIPTION", help="also the queue's name")
    parser.add_argument(
        "--filter", default="", metavar="EXPRESSION", help="in CEL; default: everything"
    )


def run(options: Mapping[str, Any], output: Output) -> None:
    """The subscription as it is now."""
    topic, name = options["topic"], options["subscription"]
    manager = Subscription.objects.db_manager(options["database"])
    try:
        manager.subscribe(topic, name, filter=options["filter"])
    except ValueError as error:
        raise CommandError(str(error)) from error
    output.answer(
        {"topic": topic, "subscription": name, "filter": options["filter"]},
        f"Queue {name} gets what is published to {topic}: {options['filter'] or 'everything'}",
    )
