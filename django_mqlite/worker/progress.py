"""How far a burst has come, on a terminal."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from ..models import Queue


@contextmanager
def burst_progress(
    using: str, queues: Sequence[str], *, wanted: bool
) -> Iterator[Callable[[int], None]]:
    """Yields what is told of each claim how many messages it took; shows nothing in a pipe."""
    if not wanted or not sys.stdout.isatty():
        yield lambda count: None
        return
    stats = Queue.objects.db_manager(using).stats()
    waiting = sum(queue.counts["active"] for queue in stats if queue.queue in queues)
    columns = (TextColumn("messages"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns) as progress:
        task = progress.add_task("", total=waiting)
        yield lambda count: progress.advance(task, count)
