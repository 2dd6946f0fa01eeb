"""The command for recurring schedules: list, show, run, pause and resume."""

from argparse import ArgumentParser
from collections.abc import Callable
from typing import Any

from django.core.management.base import CommandError

from django_mqlite.formatting import state_label
from django_mqlite.managers import ScheduleManager
from django_mqlite.models import Schedule
from django_mqlite.types import ScheduleStatus

from .arguments import Options, Subcommand
from .output import ERROR, WARNING, Marked, Output, age, ago, as_command_error, cell, lines
from .table import text_column

NO_SCHEDULES = (
    "There are no recurring schedules. Declare them in MQLITE['SCHEDULES'] or with @periodic."
)
COLUMNS = (
    "schedule", "status", "next run", "last run", text_column("last message"),
    text_column("ticks"), text_column("enqueues"),
)  # fmt: skip


LEVELS = {
    "failing": ERROR, "due": WARNING, "changed": WARNING, "paused": WARNING, "skipping": WARNING,
    "clock_set_back": WARNING,
}  # fmt: skip
"""The colors of the codes for which a schedule does not run in time."""


def _add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", metavar="NAME", help="default: all of them")
    parser.add_argument("action", nargs="?", choices=tuple(ACTIONS), help="default: show it")


def _schedules(options: Options, output: Output) -> None:
    schedules = Schedule.objects.db_manager(options["database"])
    name, action = options["name"], options["action"]
    with as_command_error(TypeError, ValueError):
        if action:
            ACTIONS[action](schedules, name, output)
        elif name:
            _show(schedules.status(name), output)
        else:
            _list(schedules, output)


def _list(schedules: ScheduleManager[Any], output: Output) -> None:
    statuses = schedules.statuses()
    output.answer_table(
        {"schedules": [document(status) for status in statuses]},
        COLUMNS,
        [_row(status) for status in statuses],
        empty=NO_SCHEDULES,
    )


def _row(status: ScheduleStatus) -> list[Any]:
    outcome = status.last_outcome
    last = f"#{status.last_message} {_became(outcome)}" if outcome else None
    code = status.explanation.code
    return [
        status.name,
        Marked(code.replace("_", " "), LEVELS.get(code, "")),
        age(status.next_run),
        ago(status.last_run),
        last,
        status.definition,
        status.target,
    ]


def _became(outcome: Any) -> str:
    """Return the state of the last message in a word or two."""
    state = outcome.facts["state"]
    return state_label(state) if state else outcome.code.replace("_", " ")


def document(status: ScheduleStatus) -> dict[str, Any]:
    """Return a schedule as JSON."""
    outcome, why = status.last_outcome, status.explanation
    return {
        "schedule": status.name,
        "definition": status.definition,
        "target": status.target,
        "paused": status.paused,
        "next_run": status.next_run,
        "last_run": status.last_run,
        "last_message": status.last_message,
        "last_outcome": outcome and {"code": outcome.code, "text": outcome.text},
        "why": {"code": why.code, "text": why.text, "facts": dict(why.facts)},
    }


def _show(status: ScheduleStatus, output: Output) -> None:
    facts = {
        "ticks": status.definition,
        "enqueues": status.target,
        "catch up": status.explanation.facts["catch_up"],
        "overlap": status.explanation.facts["overlap"],
        "next run": status.next_run,
        "last run": status.last_run,
    }
    text = [explained(status), *(f"  {name}: {cell(value)}" for name, value in facts.items())]
    if status.last_outcome:
        text.append(f"  #{status.last_message}: {lines(status.last_outcome.text)}")
    output.answer(document(status), "\n".join(text))


def explained(status: ScheduleStatus) -> str:
    """Return the explanation of a schedule with its subject."""
    return lines(f"schedule {status.name}: {status.explanation.text}")


def _run(schedules: ScheduleManager[Any], name: str, output: Output) -> None:
    message = schedules.run_now(name)
    if message is None:
        facts = schedules.status(name).explanation.facts
        raise CommandError(
            f"Schedule {name} not run: its previous message #{facts['last_message']} is "
            'unfinished, and its overlap is "skip".'
        )
    output.answer(
        {"schedule": name, "id": message.pk, "queue": message.queue},
        f"#{message.pk} enqueued in queue {message.queue} for schedule {name}.",
    )


def _pause(schedules: ScheduleManager[Any], name: str, output: Output) -> None:
    changed = schedules.pause(name)
    _answer(name, output, changed, paused=True, text="paused" if changed else "was already paused")


def _resume(schedules: ScheduleManager[Any], name: str, output: Output) -> None:
    changed = schedules.resume(name)
    _answer(name, output, changed, paused=False, text="resumed" if changed else "was not paused")


def _answer(name: str, output: Output, changed: bool, *, paused: bool, text: str) -> None:
    document = {"schedule": name, "paused": paused, "changed": changed}
    output.answer(document, f"Schedule {name} {text}.")


ACTIONS: dict[str, Callable[[ScheduleManager[Any], str, Output], None]] = {
    "run": _run,
    "pause": _pause,
    "resume": _resume,
}

SUBCOMMANDS = (
    Subcommand(
        "schedules",
        "List recurring schedules, show one, run it now, pause it or resume it.",
        _schedules,
        _add_arguments,
        "mqlite schedules nightly-report run",
    ),
)
