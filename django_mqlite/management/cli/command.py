"""The base class of the management commands: how they end in a shell."""

import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, OutputWrapper
from django.core.management.color import no_style

from django_mqlite.logs import flush_streams

from .output import Output, OutputFailed

INTERRUPTED = 130
"""The exit code after Ctrl-C: 128 and the number of SIGINT, as in other programs."""
CLOSED_PIPE = 141
"""The exit code if the reader of a pipe has ended, such as `head`: 128 and SIGPIPE."""


class ShellCommand(BaseCommand):
    """A command that ends without a traceback after Ctrl-C, or if its output cannot be written.

    It also observes NO_COLOR, unless --force-color is given.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        if os.environ.get("NO_COLOR") and not options.get("force_color"):
            options["no_color"] = True
        super().__init__(*args, **options)

    def output(self, options: Mapping[str, Any]) -> Output:
        """Return the output of this call: colored on a terminal, or with --force-color."""
        is_colored = options["force_color"] or self.stdout.isatty()
        style = self.style if is_colored else no_style()
        as_json = options.get("json", False)
        return Output(stdout=self.stdout, stderr=self.stderr, style=style, as_json=as_json)

    def run_from_argv(self, argv: list[str]) -> None:
        self._open_closed_streams()
        try:
            try:
                super().run_from_argv(argv)
            finally:
                _flush_stdout()  # now, because an error at exit could not be handled
        except KeyboardInterrupt:
            sys.exit(INTERRUPTED)
        except BrokenPipeError:
            sys.exit(CLOSED_PIPE)
        except OutputFailed as error:
            with suppress(OSError):
                self.stderr.write(
                    f"CommandError: The output could not be written: {error}. What the command "
                    "has changed is kept."
                )
            sys.exit(1)
        finally:
            flush_streams()

    def _open_closed_streams(self) -> None:
        """Use the null device instead of the streams that the shell has closed (`>&-`).

        Their descriptors are opened as well, or a database or a pipe to a process would get them.
        """
        for descriptor in (0, 1, 2):
            with suppress(OSError):
                os.fstat(descriptor)
                continue
            opened = os.open(os.devnull, os.O_RDWR)  # gets the lowest closed descriptor
            os.set_inheritable(opened, True)
        if sys.stdin is None:
            sys.stdin = _null_device("r")
        if sys.stdout is None:
            sys.stdout = _null_device()
            self.stdout = OutputWrapper(sys.stdout)
        if sys.stderr is None:
            sys.stderr = _null_device()
            self.stderr = OutputWrapper(sys.stderr)


def _null_device(mode: str = "w") -> Any:
    return Path(os.devnull).open(mode, encoding="utf-8")


def _flush_stdout() -> None:
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputFailed(error.strerror) from error
