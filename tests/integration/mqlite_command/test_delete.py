"""mqlite empty and prune."""

import pytest
from django.core.management import CommandError

from django_mqlite.models import Message
from tests.support.verbs import dead_letter, enqueue_and_claim, state_of

from .calls import Terminal, answer, mqlite


def complete(queue):
    enqueue_and_claim(queue).complete()


def test_empty_asks_with_the_counts_and_deletes(queue, make_queue, reply):
    make_queue("others")
    other = Message.objects.enqueue("others", 1)
    dead_letter("jobs")
    held = enqueue_and_claim("jobs")
    for delay in (0, 0, 60):
        Message.objects.enqueue("jobs", 1, delay=delay)
    reply("no\n")
    notes = Terminal()

    with pytest.raises(CommandError, match="Nothing was done"):
        mqlite("empty", "jobs", stderr=notes)
    assert (
        "Delete 4 messages of queue jobs (2 active, 1 scheduled, 1 dead-lettered)? This is "
        "permanent." in notes.getvalue()
    )
    reply("y\n")
    assert mqlite("empty", "jobs") == (
        "4 messages of queue jobs deleted.\nKept because they are being handled: 1 message\n"
    )
    assert answer("empty", "jobs", "--yes") == {
        "queue": "jobs", "deleted": 0, "kept": [], "locked": 1,
    }  # fmt: skip
    assert [state_of(held), state_of(other)] == ["locked", "active"]


def test_empty_deletes_no_more_than_was_confirmed(queue, reply):
    Message.objects.enqueue("jobs", 1)
    reply("y\n", meanwhile=lambda: Message.objects.enqueue("jobs", 2))

    assert mqlite("empty", "jobs") == "1 message of queue jobs deleted.\n"


def test_prune_counts_asks_and_deletes(make_queue, reply, clock):
    for name in ("jobs", "others"):
        make_queue(name, retain_completed=3_600)
        complete(name)
    clock.advance(600)
    complete("jobs")
    selection = ("--older-than", "10m")

    assert mqlite("prune", *selection, "--dry-run") == (
        "2 completed messages of all queues would be deleted.\n"
    )
    assert answer("prune", "jobs", "--all", "--dry-run") == {
        "queue": "jobs", "matching": 2, "deleted": 0, "dry_run": True, "kept": [],
    }  # fmt: skip
    reply("no\n")
    with pytest.raises(CommandError, match="Nothing was done"):
        mqlite("prune", "jobs", *selection)
    assert Message.objects.count() == 3
    reply("y\n")
    assert mqlite("prune", "jobs", *selection) == ("1 completed message of queue jobs deleted.\n")
    assert answer("prune", "--all", "--yes")["deleted"] == 2
    assert answer("prune", "--all", "--yes")["deleted"] == 0


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("prune", "--yes"), "Nothing is selected: pass --older-than, --limit or --all"),
        (("prune", "--all", "--limit", 1, "--yes"), "do not combine it"),
        (("prune", "job", "--all", "--yes"), "There is no queue 'job'"),
        (("prune", "--all"), "pass --yes"),
        (("empty", "job", "--yes"), "There is no queue 'job'"),
        (("empty", "jobs"), "pass --yes"),
    ],
)
def test_refused_command_deletes_nothing(make_queue, arguments, error):
    make_queue("jobs", retain_completed=60)
    complete("jobs")
    Message.objects.enqueue("jobs", 1)

    with pytest.raises(CommandError, match=error):
        mqlite(*arguments)

    assert Message.objects.count() == 2
