"""`manage.py mqlite`, called as from a shell."""

import io
import json
from typing import Any

import pytest
from django.core.management import call_command

SLEEP = "django_mqlite.management.cli.output.sleep"
"""The pause between two polls of the commands that run until Ctrl-C."""


class Terminal(io.StringIO):
    """A stream that is a terminal."""

    def isatty(self) -> bool:
        return True


def mqlite(
    *arguments: Any, stdout: io.StringIO | None = None, stderr: io.StringIO | None = None
) -> str:
    """Run the command and return its output; CommandError is exit code 1 in a shell."""
    stdout = stdout or io.StringIO()
    call_command(
        "mqlite", *map(str, arguments), stdout=stdout, stderr=stderr or io.StringIO()
    )  # fmt: skip
    return stdout.getvalue()


def answer(*arguments: Any) -> Any:
    """Run the command with --json and return the document."""
    return json.loads(mqlite(*arguments, "--json"))


def failed(*arguments: Any) -> str:
    """Run a command that prints an answer and exits with code 1; return the output."""
    stdout = io.StringIO()
    with pytest.raises(SystemExit) as exited:
        mqlite(*arguments, stdout=stdout)
    assert exited.value.code == 1
    return stdout.getvalue()
