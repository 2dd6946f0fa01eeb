"""mqlite purge: dead letters are deleted for good."""

from argparse import ArgumentParser
from collections.abc import Mapping
from typing import Any

from django.core.management.base import CommandError

from django_mqlite.managers import DeadLetterManager
from django_mqlite.models import DeadLetter
from django_mqlite.types import BulkCount
from django_mqlite.verbs.dead_letters import format_ids

from .arguments import add_selection, check_selection
from .bar import bar
from .confirm import add_yes, confirm_unless_yes, must_be_askable
from .output import Output
from .selection import checked_ids

HELP = "Delete dead letters of a queue for good."


def add_arguments(parser: ArgumentParser) -> None:
    """QUEUE (--id N … | --limit N | --older-than AGE | --reason NAME | --all) [--yes]"""
    add_selection(parser)
    parser.add_argument("--all", action="store_true", help="every dead letter of the queue")
    add_yes(parser)


def run(options: Mapping[str, Any], output: Output) -> None:
    """Count, ask, delete."""
    _check_bounds(options)
    if not options["yes"]:
        must_be_askable()
    queue = options["queue"]
    letters = DeadLetter.objects.db_manager(options["database"])
    done = (
        _purge_ids(letters, options, output) if options["ids"] else _purge(letters, options, output)
    )
    text = f"Purged from queue {queue}: {done}"
    if done.referenced:
        text += f"\nKept, because other tables refer to them: {format_ids(done.referenced)}"
    output.answer({"queue": queue, "purged": done, "kept": list(done.referenced)}, text)


def _check_bounds(options: Mapping[str, Any]) -> None:
    check_selection(options, "all")
    bounds = [name for name in ("ids", "limit", "older_than", "reason", "all") if options[name]]
    if not bounds:
        raise CommandError(
            "Say which: --id, --limit, --older-than, --reason, or --all for every one."
        )
    if options["all"] and len(bounds) > 1:
        raise CommandError("--all means every one, so it cannot be combined with a bound.")


def _purge_ids(
    letters: DeadLetterManager[DeadLetter], options: Mapping[str, Any], output: Output
) -> BulkCount:
    ids = checked_ids(letters, options["queue"], options["ids"])
    _confirm(len(ids), options, output)
    return letters.purge(ids)


def _purge(
    letters: DeadLetterManager[DeadLetter], options: Mapping[str, Any], output: Output
) -> BulkCount:
    queue = options["queue"]
    wanted = {"older_than": options["older_than"], "reason": options["reason"]}
    count = letters.matching(queue, **wanted)[: options["limit"]].count()
    if count:
        _confirm(count, options, output)
        # No more than what was agreed to, whatever died meanwhile.
        with bar(output, "dead letters", count) as show:
            return letters.purge_queue(queue, limit=count, progress=show, **wanted)
    return BulkCount()


def _confirm(count: int, options: Mapping[str, Any], output: Output) -> None:
    question = f"Delete {count} dead letter(s) of queue {options['queue']} for good?"
    confirm_unless_yes(options, question, output)
