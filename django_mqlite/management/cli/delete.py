"""Commands that delete messages for good: empty a queue, and prune completed messages."""

from argparse import ArgumentParser

from django.core.management.base import CommandError

from django_mqlite.models import Message
from django_mqlite.types import BulkCount, State
from django_mqlite.verbs.references import format_ids

from .act import counts_of_queue
from .arguments import Options, Subcommand, add_yes, count, duration
from .output import Output, plural, require_terminal

# empty

DELETED = {
    State.ACTIVE: "active", State.SCHEDULED: "scheduled", State.DEFERRED: "deferred",
    State.DEAD_LETTERED: "dead-lettered",
}  # fmt: skip


def _add_empty_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("queue", metavar="QUEUE", help="name of the queue")
    add_yes(parser)


def _empty(options: Options, output: Output) -> None:
    queue = options["queue"]
    counts = counts_of_queue(queue, options)
    require_terminal(options)
    total = sum(counts[state] for state in DELETED)
    deleted = BulkCount()
    if total:
        parts = [f"{counts[state]:,} {name}" for state, name in DELETED.items() if counts[state]]
        question = (
            f"Delete {plural(total, 'message')} of queue {queue} ({', '.join(parts)})? "
            "This is permanent."
        )
        output.confirm(question, options)
        with output.progress("messages", total) as progress:
            # At most the confirmed number, even if there are more messages by now.
            deleted = Message.objects.db_manager(options["database"]).empty_queue(
                queue, limit=total, progress=progress
            )
    locked = counts_of_queue(queue, options)[State.LOCKED]
    text = f"{plural(deleted, 'message')} of queue {queue} deleted."
    if locked:
        text += f"\nKept because they are being handled: {plural(locked, 'message')}"
    output.answer(
        {"queue": queue, "deleted": deleted, "kept": list(deleted.kept), "locked": locked},
        text + _kept(deleted),
    )


def _kept(count: BulkCount) -> str:
    if not count.referenced:
        return ""
    return f"\nKept because other tables refer to them: {format_ids(count.referenced)}"


# prune


def _add_prune_arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("queue", nargs="?", metavar="QUEUE", help="default: all queues")
    text = "completed at least this long ago, such as 7d"
    add("--older-than", type=duration, metavar="AGE", help=text)
    add("--limit", type=count, metavar="N", help="at most N, the oldest of each queue first")
    add("--all", action="store_true", help="all completed messages")
    add("--dry-run", action="store_true", help="delete nothing, only count")
    add_yes(parser)


def _prune(options: Options, output: Output) -> None:
    selection = {"older_than": options["older_than"], "limit": options["limit"]}
    selected = any(selection.values())
    if options["all"] and selected:
        raise CommandError(
            "--all selects every completed message: do not combine it with another selection."
        )
    if not (options["all"] or selected):
        raise CommandError("Nothing is selected: pass --older-than, --limit or --all.")
    queue, messages = options["queue"], Message.objects.db_manager(options["database"])
    pruned = messages.prune_completed(queue, **selection, everything=options["all"], dry_run=True)
    where = f"queue {queue}" if queue else "all queues"
    done = "would be deleted"
    if not options["dry_run"]:
        require_terminal(options)
        done = "deleted"
        if pruned:
            found = plural(pruned, "completed message")
            output.confirm(f"Delete {found} of {where}? This is permanent.", options)
            with output.progress("messages", pruned) as progress:
                # At most the confirmed number, even if there are more by now.
                selection["limit"] = int(pruned)
                pruned = messages.prune_completed(queue, **selection, progress=progress)
    output.answer(
        {
            "queue": queue,
            "deleted": 0 if options["dry_run"] else pruned,
            "matching": pruned,
            "dry_run": options["dry_run"],
            "kept": list(pruned.kept),
        },
        f"{plural(pruned, 'completed message')} of {where} {done}.{_kept(pruned)}",
    )


# fmt: off
SUBCOMMANDS = (
    Subcommand("empty", "Delete the waiting messages of a queue and its dead letters, permanently.",
        _empty, _add_empty_arguments, "mqlite empty orders"),
    Subcommand("prune", "Delete completed messages and results of tasks early, permanently.",
        _prune, _add_prune_arguments, "mqlite prune emails --older-than 7d --dry-run"),
)
# fmt: on
