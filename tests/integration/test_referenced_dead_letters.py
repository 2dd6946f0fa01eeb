"""A message that a foreign key of the project refers to is kept, counted and named."""

import json
from contextlib import nullcontext

import pytest
from django.core.management import call_command
from django.db import IntegrityError, connection, transaction
from django.urls import reverse

from django_mqlite import enqueue
from django_mqlite.exceptions import MessageReferenced
from django_mqlite.models import DeadLetter, Message
from tests.integration.admin.pages import hidden_in, text_of
from tests.support.verbs import claim_one, dead_letter, enqueue_and_claim, row_of, state_of

KINDS = {
    "deferred": "REFERENCES mqlite_messages (id) DEFERRABLE INITIALLY DEFERRED",
    "immediate": "REFERENCES mqlite_messages (id)",
    "restrict": 'REFERENCES "MQLITE_MESSAGES" (id) ON DELETE RESTRICT',
}


@pytest.fixture(params=[True, False], ids=["autocommit", "in a TestCase"])
def transactional(request):
    request.getfixturevalue("transactional_db" if request.param else "db")


@pytest.fixture
def refer_to(transactional):
    """Refer to the message in a row of the project, under names that must be quoted."""

    def refer_to(message, kind="deferred"):
        with connection.cursor() as cursor:
            cursor.execute(f'CREATE TABLE IF NOT EXISTS "order" ("group" INTEGER {KINDS[kind]})')
            cursor.execute('INSERT INTO "order" VALUES (%s)', [message.pk])

    yield refer_to
    with connection.cursor() as cursor:
        cursor.execute('DROP TABLE IF EXISTS "order"')


@pytest.fixture
def letters(transactional, queue, make_queue):
    make_queue("elsewhere")
    return [dead_letter("jobs", n) for n in range(5)]


VERBS = {
    "purge": DeadLetter.objects.purge,
    "purge_queue": lambda ids: DeadLetter.objects.purge_queue("jobs", everything=True),
    "purge_queue of a reason": lambda ids: DeadLetter.objects.purge_queue("jobs", reason="Broken"),
    "redrive into": lambda ids: DeadLetter.objects.redrive(ids, into="elsewhere"),
    "redrive_queue into": lambda ids: DeadLetter.objects.redrive_queue("jobs", into="elsewhere"),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("atomic", [False, True], ids=["own transaction", "the caller's"])
def test_referenced_dead_letter_is_skipped_counted_and_named(letters, refer_to, verb, kind, atomic):
    refer_to(letters[2], kind)
    ids = [letter.pk for letter in letters]

    with transaction.atomic() if atomic else nullcontext():
        done = VERBS[verb](ids)

    assert done == 4
    assert done.referenced == (letters[2].pk,)
    assert list(DeadLetter.objects.values_list("pk", flat=True)) == [letters[2].pk]
    assert Message.objects.filter(queue="elsewhere").count() == (4 if "into" in verb else 0)


@pytest.mark.parametrize("kind", KINDS)
def test_referenced_dead_letter_is_not_redriven_with_a_body(letters, refer_to, kind):
    refer_to(letters[2], kind)

    with pytest.raises(MessageReferenced, match="order"):
        DeadLetter.objects.redrive_with(letters[2].pk, 5)

    assert state_of(letters[2]) == "dead_lettered"
    assert Message.objects.count() == 5


def test_redrive_in_place_skips_nothing(letters, refer_to):
    refer_to(letters[2])

    done = DeadLetter.objects.redrive([letter.pk for letter in letters])

    assert (done, done.referenced) == (5, ())


@pytest.mark.parametrize("action", ["CASCADE", "SET NULL"])
def test_reference_that_the_database_resolves_keeps_no_dead_letter(letters, refer_to, action):
    with connection.cursor() as cursor:
        cursor.execute(
            'CREATE TABLE "order" ("group" INTEGER REFERENCES mqlite_messages (id)'
            f" ON DELETE {action})"
        )
    refer_to(letters[2])

    assert DeadLetter.objects.purge_queue("jobs", everything=True) == 5


@pytest.mark.parametrize("arguments", [["--all"], ["--id", "all"]], ids=["all", "by id"])
def test_purge_command_names_the_kept_dead_letters(letters, refer_to, capsys, arguments):
    refer_to(letters[2])
    if arguments[0] == "--id":
        arguments = ["--id", *(str(letter.pk) for letter in letters)]

    call_command("mqlite", "purge", "jobs", *arguments, "--yes")

    assert capsys.readouterr().out.splitlines()[-2:] == [
        "4 dead letters of queue jobs purged.",
        f"Kept because other tables refer to them: #{letters[2].pk}",
    ]


@pytest.mark.parametrize(
    ("command", "key"),
    [
        (["purge", "jobs", "--all", "--yes"], "purged"),
        (["redrive", "jobs", "--into", "elsewhere", "--yes"], "redriven"),
    ],
)
def test_json_output_lists_the_kept_dead_letters(letters, refer_to, capsys, command, key):
    refer_to(letters[2])

    call_command("mqlite", *command, "--json")

    result = json.loads(capsys.readouterr().out)
    assert (result[key], result["kept"]) == (4, [letters[2].pk])


@pytest.mark.parametrize("count", [1, 5], ids=["the only one", "one of five"])
@pytest.mark.parametrize("across", [0, 1], ids=["selected", "all that match"])
@pytest.mark.parametrize("action", ["purge", "redrive"])
def test_admin_action_names_the_kept_dead_letters(
    letters, refer_to, admin_client, action, across, count
):
    DeadLetter.objects.purge([letter.pk for letter in letters[: 5 - count]])
    kept = letters[-1]
    refer_to(kept)
    url = reverse("admin:django_mqlite_deadletter_changelist")
    chosen = {
        "action": action,
        "_selected_action": [letter.pk for letter in letters],
        "select_across": across,
    }
    question = admin_client.post(url, chosen)
    answer = {**hidden_in(text_of(question)), "_selected_action": chosen["_selected_action"]}

    done = admin_client.post(url, {**answer, "into": "elsewhere"}, follow=True)

    messages = [str(message) for message in done.context["messages"]]
    assert f"Kept because other tables refer to them: #{kept.pk}" in messages
    assert len(messages) == (1 if count == 1 else 2)
    assert list(DeadLetter.objects.values_list("pk", flat=True)) == [kept.pk]


def test_admin_button_names_the_kept_dead_letter(letters, refer_to, admin_client):
    refer_to(letters[0])
    url = reverse("admin:django_mqlite_message_purge", args=[letters[0].pk])

    page = admin_client.post(url, {"lease": "", "confirmed": "yes"}, follow=True)

    assert f"Kept because other tables refer to them: #{letters[0].pk}" in text_of(page)
    assert state_of(letters[0]) == "dead_lettered"


def complete(message):
    claim_one("jobs").complete()


def complete_many(message):
    Message.objects.complete_many(Message.objects.claim("jobs", limit=9))


DELETIONS = {
    "complete": ({}, complete),
    "complete_many": ({}, complete_many),
    "claim_and_delete": ({}, lambda message: Message.objects.claim_and_delete("jobs", limit=9)),
    "cancel": ({"delay": 60}, lambda message: message.cancel()),
}


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("transactional", [True], indirect=True)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("verb", DELETIONS)
def test_verb_names_the_table_that_refers_to_its_message(
    transactional, queue, refer_to, verb, kind
):
    options, delete = DELETIONS[verb]
    message = enqueue("jobs", None, **options)
    enqueue("jobs", None, **options)
    refer_to(message, kind)

    with pytest.raises(MessageReferenced, match="a row of order refers to") as error:
        delete(message)

    assert error.value.tables == ("order",)
    assert Message.objects.count() == 2


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("transactional", [True], indirect=True)
def test_other_integrity_errors_keep_their_class(transactional, queue):
    message = enqueue_and_claim("jobs")
    before = row_of(message)
    with connection.cursor() as cursor:
        cursor.execute(
            "CREATE TRIGGER refuse BEFORE DELETE ON mqlite_messages"
            " BEGIN SELECT raise(ABORT, 'refused'); END"
        )

    with pytest.raises(IntegrityError, match="refused"):
        message.complete()

    assert row_of(message) == before
    with connection.cursor() as cursor:
        cursor.execute("DROP TRIGGER refuse")
