"""The output of the demo: progress bars on a terminal, lines of text elsewhere."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn
from rich.table import Table

from django_mqlite.models import DeadLetter

from .accounts import Account

SHOWN_DEAD_LETTERS = 5


class Screen:
    def __init__(self) -> None:
        self.console = Console(highlight=False)
        self._progress = Progress(
            TextColumn("{task.description:<14}"),
            BarColumn(bar_width=40),
            MofNCompleteColumn(),
            console=self.console,
            disable=not self.console.is_terminal,
        )
        self._tasks: dict[str, TaskID] = {}
        self._quarters: dict[str, int] = {}

    @contextmanager
    def bars(self) -> Iterator[None]:
        with self._progress:
            yield

    def say(self, text: str) -> None:
        self.console.print(escape(text), soft_wrap=True)

    def show_progress(self, label: str, count: int, *, total: int) -> None:
        """Show that `count` of `total` are done."""
        if self.console.is_terminal:
            if label not in self._tasks:
                self._tasks[label] = self._progress.add_task(label, total=total)
            self._progress.update(self._tasks[label], completed=count)
        elif (quarter := 4 * count // total) > self._quarters.get(label, 0):
            self._quarters[label] = quarter
            self.say(f"  {label}: {count} of {total}")

    def list_dead_letters(self, letters: Sequence[DeadLetter]) -> None:
        table = Table("id", "order", "deliveries", "reason", "last error")
        for letter in letters[:SHOWN_DEAD_LETTERS]:
            table.add_row(
                str(letter.pk),
                str(letter.data["order"]),
                str(letter.delivery_count),
                letter.dead_letter_reason,
                escape(letter.errors[-1]["message"]) if letter.errors else "",
            )
        self.console.print(table)
        if len(letters) > SHOWN_DEAD_LETTERS:
            self.say(f"  … and {len(letters) - SHOWN_DEAD_LETTERS} more")

    def show_account(self, account: Account) -> None:
        table = Table("the account", "")
        table.columns[1].justify = "right"
        for name, count in [
            ("placed", account.placed),
            ("rolled back", account.rolled_back),
            ("handled", account.handled),
            ("handled twice", account.handled_twice),
            ("dead-lettered", account.dead_lettered),
            ("redriven", account.redriven),
            ("lost", account.lost),
            ("messages without an order", account.messages_without_order),
        ]:
            table.add_row(name, f"{count:,}")
        self.console.print(table)
        for fault in account.faults:
            self.console.print(f"[bold red]Error:[/] {escape(fault)}", soft_wrap=True)
        if not account.faults:
            self.say("Every order is accounted for.")
