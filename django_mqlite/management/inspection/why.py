"""mqlite why: why a message has not run, or what became of it."""

from argparse import ArgumentParser
from collections.abc import Mapping
from typing import Any

from django_mqlite.models import Message

from .arguments import count
from .documents import explained
from .output import Output

HELP = "Say why a message has not run, what holds it, or what became of it."


def add_arguments(parser: ArgumentParser) -> None:
    """ID"""
    parser.add_argument("id", type=count, metavar="ID")


def run(options: Mapping[str, Any], output: Output) -> None:
    """One sentence; as JSON with a code and the facts."""
    id = options["id"]
    why = Message.objects.db_manager(options["database"]).explain(id)
    document = {"id": id, "code": why.code, "text": why.text, "facts": dict(why.facts)}
    output.answer(document, explained(id, why))
