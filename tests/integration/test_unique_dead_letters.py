"""The command line and the admin name dead letters whose unique key keeps them from a redrive."""

import json

import pytest
from django.core.management import call_command
from django.urls import reverse

from django_mqlite import enqueue
from django_mqlite.models import DeadLetter
from tests.integration.admin.pages import hidden_in, text_of
from tests.support.verbs import dead_letter

pytestmark = pytest.mark.django_db

SENTENCE = "Kept because an unfinished message has their unique key: #{}"


@pytest.fixture
def letters(clock, queue):
    """Two dead letters, and an unfinished message with the unique key of the second."""
    letters = [dead_letter("jobs", unique_key=key) for key in ("a", "b")]
    enqueue("jobs", None, unique_key="b")
    return letters


def test_redrive_command_names_what_its_unique_key_keeps(letters, capsys):
    call_command("mqlite", "redrive", "jobs", "--yes")

    assert capsys.readouterr().out.splitlines()[-2:] == [
        "1 dead letter of queue jobs redriven.",
        SENTENCE.format(letters[1].pk),
    ]


def test_redrive_command_lists_what_its_unique_key_keeps_as_json(letters, capsys):
    call_command("mqlite", "redrive", "jobs", "--yes", "--json")

    answer = json.loads(capsys.readouterr().out)
    assert (answer["redriven"], answer["kept"]) == (1, [letters[1].pk])


@pytest.mark.parametrize("across", [0, 1], ids=["selected", "all that match"])
def test_admin_redrive_names_what_its_unique_key_keeps(letters, admin_client, across):
    url = reverse("admin:django_mqlite_deadletter_changelist")
    chosen = {
        "action": "redrive",
        "_selected_action": [letter.pk for letter in letters],
        "select_across": across,
    }
    asked = admin_client.post(url, chosen)
    answer = {**hidden_in(text_of(asked)), "_selected_action": chosen["_selected_action"]}

    done = admin_client.post(url, answer, follow=True)

    assert SENTENCE.format(letters[1].pk) in [str(m) for m in done.context["messages"]]
    assert list(DeadLetter.objects.values_list("pk", flat=True)) == [letters[1].pk]


def test_admin_redrive_of_one_message_names_its_unique_key(letters, admin_client):
    url = reverse("admin:django_mqlite_deadletter_redrive", args=[letters[1].pk])

    done = admin_client.post(url, {"confirmed": "yes"}, follow=True)

    told = [str(message) for message in done.context["messages"]]
    assert told == [SENTENCE.format(letters[1].pk)]


def test_enqueue_command_says_what_has_the_unique_key(letters, capsys):
    arguments = ["enqueue", "jobs", "{}", "--unique-key", "c"]
    call_command("mqlite", *arguments)
    first = capsys.readouterr().out

    call_command("mqlite", *arguments)

    number = first.split()[0]
    assert first == f"{number} enqueued in queue jobs.\n"
    assert capsys.readouterr().out == f"Not enqueued: queue jobs already has it as {number}.\n"
