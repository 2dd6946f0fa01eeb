"""A day in the shop: orders, a killed worker, dead letters, until all orders are handled."""

import os
import re
import signal
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from time import monotonic

from django.core.management import call_command
from django.db import connections

from django_mqlite.models import DeadLetter
from example_project.processes import Child, DemoError, Processes

from . import books
from .accounts import Account, Evidence, audit
from .customers import ACCEPTED, Customers, Plan
from .screen import Screen

QUEUE = "order-events"
MAX_ATTEMPTS = 20
"""Attempts to stop the worker between its work and the completion."""


def play(plan: Plan, directory: Path, screen: Screen) -> Account:
    """Run the whole day in a new database; raise DemoError if it fails."""
    call_command("migrate", verbosity=0)
    try:
        with Processes(directory) as processes, screen.bars():
            return Day(plan, processes, screen).play()
    finally:
        connections.close_all()


class Day:
    def __init__(self, plan: Plan, processes: Processes, screen: Screen) -> None:
        self.plan = plan
        self.processes = processes
        self.screen = screen
        self.wishes = books.wishes_for(plan)

    def play(self) -> Account:
        stock = books.stock()
        self._open()
        workers = [self._start_worker(1), self._start_worker(2)]
        leases = self._kill(workers.pop(0))
        workers.append(self._start_worker(3))
        self._order(len(self.wishes))
        self._recover(leases)
        letters = self._list_dead_letters()
        self._fix_the_cause()
        redriven = self._redrive()
        self._close(workers)
        return audit(
            Evidence(
                plan=self.plan,
                answers=self.customers.answers,
                unexpected_errors=self.customers.unexpected_errors,
                order_ids=books.order_ids(),
                payments=books.payments(),
                messages=books.messages(),
                handlings=books.handlings(),
                taken_from_stock=stock - books.stock(),
                victim=leases[0].worker,
                leased_by_victim={lease.reference for lease in leases},
                dead_letters=books.errors_by_reference(letters),
                redriven=redriven,
            )
        )

    def _open(self) -> None:
        """Start the shop, and build up a backlog before the first worker starts."""
        self.shop = self.processes.start("shop", "example_project.web", "--port", "0")
        self.processes.wait_until(lambda: _port(self.shop) > 0, what="the shop to open")
        self.customers = Customers(_port(self.shop))
        self.screen.say(f"The shop is open. The customers place {self.plan.orders} orders.")
        self._order(len(self.wishes) // 2)
        self._wait(lambda: self._accepted >= self.plan.orders // 3, "the first third of the orders")

    def _order(self, number: int) -> None:
        """Let the customers place the next `number` orders."""
        self.customers.start(self.wishes[:number])
        del self.wishes[:number]

    def _start_worker(self, number: int) -> Child:
        command = ["example_project.manage", "runworker", "--queues", QUEUE]
        worker = self.processes.start(f"worker {number}", *command)
        self.screen.say(f"Worker {number} starts.")
        return worker

    def _kill(self, victim: Child) -> Sequence[books.LeaseFact]:
        """Send SIGKILL to the worker while it handles messages; return the leases that it held.

        If possible, kill it between the work and the completion, so that an order is handled twice.
        If the workers are idle, place more orders: an idle worker holds no lease.
        """
        self._wait(lambda: books.handled() >= self.plan.orders // 4, "a quarter to be handled")
        attempts = 0
        while True:
            self._wait(
                lambda: bool(books.leases_of(victim.pid)) or self._is_idle(),
                f"{victim.name} to hold a lease",
                every=0.002,
            )
            if self._is_idle():
                if not self.wishes:
                    raise DemoError("Every order was handled before a worker could be killed.")
                self._order(self.plan.orders // 10)
            held = _freeze(victim)
            attempts += 1
            is_last_chance = attempts >= MAX_ATTEMPTS or not self.wishes
            if any(lease.is_handled for lease in held) or (held and is_last_chance):
                break
            os.kill(victim.pid, signal.SIGCONT)
        victim.popen.kill()
        victim.popen.wait()
        self.processes.forget(victim)
        done = sum(lease.is_handled for lease in held)
        self.screen.say(
            f"SIGKILL to {victim.name}. It held {len(held)} leases and had not completed {done} "
            "messages that it had handled."
        )
        return held

    def _recover(self, leases: Sequence[books.LeaseFact]) -> None:
        """Let the other workers finish all messages, including those of the killed worker."""
        killed = monotonic()
        references = [lease.reference for lease in leases]
        self._wait(
            lambda: books.are_finished(references), "the leases of the killed worker to expire"
        )
        self.screen.say(f"Its messages were finished {monotonic() - killed:.1f} s later.")
        self._wait(
            lambda: self.customers.are_done and books.is_drained(),
            "the workers to handle the rest",
        )

    def _list_dead_letters(self) -> list[DeadLetter]:
        self.screen.say("All messages are finished. Dead letters:")
        letters = DeadLetter.objects.peek(QUEUE, limit=self.plan.orders)
        self.screen.list_dead_letters(letters)
        return letters

    def _fix_the_cause(self) -> None:
        corrected = books.correct_cards()
        self.screen.say(f"{corrected} customers correct their declined cards.")

    def _redrive(self) -> int:
        redriven = DeadLetter.objects.redrive_queue(QUEUE)
        self.screen.say(f"{redriven} dead letters are redriven.")
        self._wait(books.is_drained, "the redriven messages to be handled")
        return redriven

    def _close(self, workers: list[Child]) -> None:
        for worker in workers:
            worker.popen.send_signal(signal.SIGTERM)
        for worker in workers:
            # SIGTERM ends a worker at once before its signal handlers are installed.
            if (code := _code_of(worker)) not in (0, -signal.SIGTERM):
                raise DemoError(f"{worker.name} ended with {code} on SIGTERM.\n{worker.tail()}")
            self.processes.forget(worker)

    def _wait(self, condition: Callable[[], bool], what: str, *, every: float = 0.1) -> None:
        """Wait for the condition, and show the progress."""

        def check() -> bool:
            if self.customers.unexpected_errors:
                raise DemoError("\n".join([*self.customers.unexpected_errors, self.shop.tail()]))
            self.screen.show_progress("placed", self._accepted, total=self.plan.orders)
            self.screen.show_progress("handled", books.handled(), total=self.plan.orders)
            self.screen.show_progress("dead letters", books.dead(), total=self.plan.poisonous)
            return condition()

        self.processes.wait_until(check, what=what, every=every)

    def _is_idle(self) -> bool:
        """Return True if the workers are idle until the next order."""
        return self.customers.are_done and not books.at_work()

    @property
    def _accepted(self) -> int:
        return self.customers.count(ACCEPTED)


def _port(shop: Child) -> int:
    """Return the port of the shop, or 0 if it is not listening yet."""
    match = re.search(r"serving http://127\.0\.0\.1:(\d+)/", shop.output())
    return int(match[1]) if match else 0


def _freeze(worker: Child) -> list[books.LeaseFact]:
    """Stop the process and return its leases, which it still holds when it is killed."""
    os.kill(worker.pid, signal.SIGSTOP)
    _, status = os.waitpid(worker.pid, os.WUNTRACED)
    if not os.WIFSTOPPED(status):
        raise DemoError(f"{worker.name} ended by itself.\n{worker.tail()}")
    return books.leases_of(worker.pid)


def _code_of(worker: Child) -> int | None:
    """Return the exit code, or None if the worker has not ended after 30 seconds."""
    try:
        return worker.popen.wait(timeout=30)
    except subprocess.TimeoutExpired:
        return None
