"""A progress bar for long operations on a terminal."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from .output import Output


@contextmanager
def bar(output: Output, unit: str, total: int) -> Iterator[Callable[[int], None]]:
    """Yields what is told how much is done by now; in a pipe it shows nothing.

    On stderr, so that the answer is all there is on stdout.
    """
    if not output.stderr.isatty():
        yield lambda done: None
        return
    columns = (TextColumn(unit), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=total)
        yield lambda done: progress.update(task, completed=done)
