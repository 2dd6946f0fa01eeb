"""The example of each subcommand runs, in a shop that has what it names."""

import shlex

import pytest

from django_mqlite.management.cli import SUBCOMMANDS
from django_mqlite.models import DeadLetter, Message, Queue, Subscription
from tests.support.verbs import claim_ids, claim_one, state_of
from tests.support.workers import ALIAS

from .calls import SLEEP, mqlite

STATES = {
    "cancel": "scheduled",
    "run-now": "scheduled",
    "release": "locked",
    "activate": "deferred",
    "discard": "deferred",
}
"""The state in which a command needs the messages 5 and 6; by default they are active."""
ON_FILES = ("backup", "vacuum")
"""Commands that cannot run in the transaction of a test."""
SERVING = "worker"
"""The command that runs until it is stopped."""


@pytest.fixture
def shop(clock, make_queue, settings, healthy_machine, monkeypatch, tmp_path):
    """Return a function that stores 20 messages in `orders`, of which #5 and #6 have a state."""
    settings.MQLITE = {
        "QUEUES": {},
        "SCHEDULES": {"nightly-report": {"cron": "0 3 * * *", "queue": "emails", "data": None}},
    }
    monkeypatch.chdir(tmp_path)

    def fill(state="active"):
        for name in ("orders", "emails"):
            make_queue(name)
        Subscription.objects.subscribe("prices", "stock")
        Message.objects.enqueue_many("orders", range(4))
        claim_ids("orders")
        delay = 60 if state == "scheduled" else None
        messages = [Message.objects.enqueue("orders", number, delay=delay) for number in range(2)]
        if state in ("locked", "deferred"):
            messages = [claim_one("orders"), claim_one("orders")]
        if state == "deferred":
            [message.defer() for message in messages]
        Message.objects.enqueue_many("orders", range(14))
        assert [(message.pk, state_of(message)) for message in messages] == [(5, state), (6, state)]

    return fill


def stop(seconds):
    raise KeyboardInterrupt


@pytest.mark.parametrize("name", [name for name in SUBCOMMANDS if name not in {*ON_FILES, SERVING}])
def test_example_runs(shop, reply, monkeypatch, name):
    shop(STATES.get(name, "active"))
    monkeypatch.setattr(SLEEP, stop)
    reply("y\n")
    _program, *arguments = shlex.split(SUBCOMMANDS[name].example)

    output = mqlite(*arguments)

    assert output or name == "tail"  # which shows what is enqueued later


@pytest.mark.parametrize("name", ON_FILES)
def test_example_on_a_file_runs(database, reply, monkeypatch, tmp_path, name):
    monkeypatch.chdir(tmp_path)
    reply("y\n")
    _program, *arguments = shlex.split(SUBCOMMANDS[name].example)

    assert " bytes" in mqlite(*arguments, "--database", ALIAS)


def test_example_of_the_worker_runs(database):
    message = database.enqueue("jobs")
    _program, *arguments = shlex.split(SUBCOMMANDS[SERVING].example.replace("emails", "jobs"))

    worker = database.run("mqlite", *arguments, "--burst")

    assert worker.exit_code() == 0, worker.output
    database.wait_gone(message)


CHANGES = {
    "cancel": lambda: not Message.objects.filter(pk__in=[5, 6]).exists(),
    "run-now": lambda: Message.objects.get(pk=5).state == "active",
    "release": lambda: Message.objects.get(pk=5).state == "active",
    "activate": lambda: Message.objects.filter(pk__in=[5, 6], state="active").count() == 2,
    "discard": lambda: set(DeadLetter.objects.values_list("pk", flat=True)) == {5, 6},
    "enqueue": lambda: Message.objects.filter(state="scheduled").get().data == {"order": 17},
    "publish": lambda: Message.objects.get(queue="stock").data == {"article": 7},
    "pause": lambda: Queue.objects.filter(paused=True).count() == 2,
    "subscribe": lambda: Subscription.objects.get().filter == 'subject == "changed"',
    "unsubscribe": lambda: not Subscription.objects.exists(),
    "schedules": lambda: Message.objects.filter(queue="emails").count() == 1,
    "empty": lambda: set(Message.objects.values_list("state", flat=True)) == {"locked"},
}


@pytest.mark.parametrize("name", CHANGES)
def test_example_has_its_effect(shop, reply, name):
    shop(STATES.get(name, "active"))
    reply("y\n")
    _program, *arguments = shlex.split(SUBCOMMANDS[name].example)

    mqlite(*arguments)

    assert CHANGES[name]()
