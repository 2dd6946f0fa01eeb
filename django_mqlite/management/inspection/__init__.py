"""The subcommands of `manage.py mqlite`, a module each: HELP, add_arguments() and run()."""

from argparse import ArgumentParser
from collections.abc import Mapping
from typing import Any, Protocol

from . import (
    backup,
    cancel,
    doctor,
    enqueue,
    health,
    listing,
    pause,
    peek,
    purge,
    redrive,
    release,
    resume,
    run_now,
    show,
    stats,
    subscribe,
    tail,
    vacuum,
    why,
)
from .output import Output


class Subcommand(Protocol):
    """The interface of a subcommand's module."""

    HELP: str

    def add_arguments(self, parser: ArgumentParser, /) -> None: ...

    def run(self, options: Mapping[str, Any], output: Output, /) -> None: ...


SUBCOMMANDS: dict[str, Subcommand] = {
    "stats": stats,
    "list": listing,
    "show": show,
    "why": why,
    "peek": peek,
    "tail": tail,
    "enqueue": enqueue,
    "redrive": redrive,
    "purge": purge,
    "cancel": cancel,
    "release": release,
    "run-now": run_now,
    "pause": pause,
    "resume": resume,
    "subscribe": subscribe,
    "health": health,
    "vacuum": vacuum,
    "backup": backup,
    "doctor": doctor,
}
