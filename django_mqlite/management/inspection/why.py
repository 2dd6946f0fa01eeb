"""mqlite why: why a message has not run, or what became of it."""

from collections.abc import Mapping
from typing import Any

from django_mqlite.models import Message

from .by_id import add_id, sequence_number
from .documents import explained
from .output import Output

HELP = "Say why a message has not run, what holds it, or what became of it."


add_arguments = add_id


def run(options: Mapping[str, Any], output: Output) -> None:
    """One sentence; as JSON with a code and the facts."""
    messages = Message.objects.db_manager(options["database"])
    id = sequence_number(messages, options["id"])
    why = messages.explain(id)
    document = {"id": id, "code": why.code, "text": why.text, "facts": dict(why.facts)}
    output.answer(document, explained(id, why))
