"""manage.py mqlite, called as from a shell."""

import io
import json
from typing import Any

from django.core.management import call_command

SLEEP = "django_mqlite.management.cli.inspect.sleep"
"""Between two polls of commands that run until Ctrl-C."""


class Terminal(io.StringIO):
    """A stream that is one, with somebody's typing in it."""

    def isatty(self) -> bool:
        return True


def mqlite(*arguments: Any, stdout: io.StringIO | None = None) -> str:
    """What the command prints; CommandError where a shell would see exit code 1."""
    stdout = stdout or io.StringIO()
    call_command("mqlite", *map(str, arguments), stdout=stdout, stderr=io.StringIO())
    return stdout.getvalue()


def answer(*arguments: Any) -> Any:
    """What it answers in JSON."""
    return json.loads(mqlite(*arguments, "--json"))
