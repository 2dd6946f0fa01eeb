"""How far a burst has come is shown on a terminal, and nowhere else."""

import io
import sys

import pytest

from django_mqlite import enqueue_many
from django_mqlite.worker.process import show_burst_progress

pytestmark = pytest.mark.django_db


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def two_messages(queue):
    return enqueue_many("jobs", [1, 2])


def shown(monkeypatch, stdout, *, wanted=True):
    monkeypatch.setattr(sys, "stdout", stdout)
    with show_burst_progress("default", ["jobs"], wanted=wanted) as advance:
        advance(1)
        advance(1)
    return stdout.getvalue()


def test_a_terminal_shows_how_many_of_the_waiting_messages_were_taken(monkeypatch, two_messages):
    assert "2/2" in shown(monkeypatch, Terminal())


def test_a_pipe_is_not_written_to(monkeypatch, two_messages):
    assert shown(monkeypatch, io.StringIO()) == ""


def test_a_worker_that_goes_on_shows_no_progress(monkeypatch, two_messages):
    assert shown(monkeypatch, Terminal(), wanted=False) == ""
