"""8.6 Rows that another program wrote stop no verb, command or page."""

import io
from contextlib import suppress

import pytest
from django.core.management import call_command
from django.db import OperationalError, connection, models
from django.urls import reverse

from django_mqlite import publish
from django_mqlite.exceptions import QueueNotFound
from django_mqlite.fields import DocumentField, EpochMillisecondsField
from django_mqlite.message import TASK
from django_mqlite.models import DeadLetter, Message, MetaEntry, Queue, Subscription
from django_mqlite.task_backend.compat import TaskResultDoesNotExist, task_backends
from django_mqlite.task_facts import NotATask
from django_mqlite.testing import drain
from django_mqlite.types import State, WorkerRecord
from django_mqlite.verbs.workers import register
from django_mqlite.worker.reaper import run_all
from django_mqlite.worker.registry import release_dead_workers
from tests.integration.admin.pages import confirmation

pytestmark = [pytest.mark.django_db, pytest.mark.rule("8.6")]

NOT_UTF_8 = "CAST(x'66ff' AS TEXT)"
SHAPES = [
    "'5'", "'\"x\"'", "'[1]'", "'[[]]'", "'{}'", "'{\"a\": 1}'", "'null'", "'{'", "''",
    '\'[{"class": 1, "message": [], "worker": {}, "failed_at": "x", "delivery": []}]\'',
]  # fmt: skip
BOUNDS = [str(-(2**63)), "-1", str(2**63 - 1)]


KEYS = {"id", "key", "queue", "state", "lock_token"}


def columns(model, *kinds):
    """Return the columns of these kinds of field that can be written, except keys."""
    fields = [f for f in model._meta.concrete_fields if isinstance(f, kinds)]
    return [f.column for f in fields if f.column not in KEYS and not f.generated]


NUMBERS = (models.BigIntegerField, EpochMillisecondsField)
DAMAGES = {
    "texts": {
        model: [(c, NOT_UTF_8) for c in columns(model, models.TextField, DocumentField)]
        for model in (Message, Queue, Subscription, MetaEntry)
    },
    "documents": {
        Message: [(c, shape) for c in columns(Message, DocumentField) for shape in SHAPES],
        MetaEntry: [("value", shape) for shape in SHAPES],
    },
    "numbers": {
        model: [(c, bound) for c in columns(model, *NUMBERS) for bound in BOUNDS]
        for model in (Message, Queue, Subscription, MetaEntry)
    },
    "ids": {Message: [("id", id) for id in ("-7", "0", BOUNDS[0])]},
}
WORKER = WorkerRecord(
    worker="w", host="h", boot_id="b", pid_namespace=1, pid=1, process_started_at=0.0,
    queues=("jobs",), slots=1, in_flight=0, started_at=0,
)  # fmt: skip


def insert(table, **values):
    """Insert a row past the constraints of the table."""
    driver = connection.connection
    driver.execute("PRAGMA ignore_check_constraints = ON")
    driver.execute(
        f"INSERT INTO {table} ({', '.join(values)}) VALUES ({', '.join(values.values())})"
    )
    driver.execute("PRAGMA ignore_check_constraints = OFF")


def insert_message(state, number, **values):
    lease = {"lock_token": "'t'", "locked_by": "'w'"} if state == State.LOCKED else {}
    task = {"content_type": f"'{TASK}'"} if number % 2 else {}
    defaults = {
        "queue": "'jobs'", "state": f"'{state}'", "enqueued_at": "1", "message_id": f"'m{number}'",
        "subject": "'shop.tasks.greet'", "body": "CAST('{\"args\": [], \"kwargs\": {}}' AS BLOB)",
    }  # fmt: skip
    insert("mqlite_messages", **{**defaults, **lease, **task, **values})


def insert_queue(column, value, number):
    queue = {"name": f"'q{number}'", "created_at": "1", "updated_at": "1", column: value}
    insert("mqlite_queues", **queue)
    insert_message("active", number, queue=queue["name"])


def insert_subscription(column, value, number):
    row = {"subscription": f"'s{number}'", "topic": "'topic'", "created_at": "1", column: value}
    if column == "subscription":
        row["subscription"] = f"{value} || 's'"
    insert("mqlite_queues", name=row["subscription"], created_at="1", updated_at="1")
    insert("mqlite_subscriptions", **row)


def insert_entry(column, value, number):
    key = "settled" if number == 0 else f"worker:{number}"
    insert("mqlite_meta", **{"key": f"'{key}'", "value": "'{}'", "updated_at": "1", column: value})


def insert_messages(column, value, number):
    for state in [State.ACTIVE] if column == "id" else State:
        number += 1
        if column in {"line", "unique_key"}:  # which one unfinished message may have
            value = f"{value} || '{state}'"
        insert_message(state, number, **{column: value})


INSERT = {
    Queue: insert_queue,
    Subscription: insert_subscription,
    MetaEntry: insert_entry,
    Message: insert_messages,
}


@pytest.fixture(params=DAMAGES)
def damaged(clock, request):
    """Insert rows with one damaged column each, messages in all states, and sound rows."""
    Queue.objects.create_queue("jobs")
    Subscription.objects.subscribe("topic", "sound")
    register("default", WORKER)
    for model, damages in DAMAGES[request.param].items():
        for number, (column, value) in enumerate(damages):
            INSERT[model](column, value, number * len(State))
    insert_message(State.ACTIVE, 10_000)
    return request.param


def ids():
    return list(Message.objects.values_list("pk", flat=True))


def cli(*arguments):
    for form in ([], ["--json"]):
        with suppress(SystemExit):  # of health, which has found something
            call_command("mqlite", *arguments, *form, stdout=io.StringIO(), stderr=io.StringIO())


def cli_of_each(command):
    for id in ids()[::7]:
        if id > 0:
            cli(command, str(id))


def get(client, view, *arguments):
    url = reverse(f"admin:django_mqlite_{view}", args=arguments)
    assert client.get(url).status_code == 200, url


def get_each(client, view, keys):
    for key in keys:
        get(client, view, key)


def post(client, model, action):
    url = reverse(f"admin:django_mqlite_{model._meta.model_name}_changelist")
    keys = list(model.objects.values_list("pk", flat=True))
    for confirmed in ({}, confirmation(len(keys))):
        data = {"action": action, "_selected_action": keys, **confirmed}
        assert client.post(url, data).status_code in {200, 302}


def get_results():
    for message_id in Message.objects.values_list("message_id", flat=True):
        with suppress(NotATask, TaskResultDoesNotExist):
            task_backends["default"].get_result(message_id)


def publish_to_sound():
    with suppress(QueueNotFound):  # of a subscription whose name nobody can use
        publish("topic", 1)


READERS = {
    "mqlite list": lambda client: cli("list"),
    "mqlite list QUEUE": lambda client: cli("list", "jobs"),
    "mqlite list --state": lambda client: cli("list", "--state", "dead_lettered"),
    "mqlite show": lambda client: cli_of_each("show"),
    "mqlite why": lambda client: cli_of_each("why"),
    "mqlite peek": lambda client: cli("peek", "jobs", "--limit", "1000"),
    "mqlite peek --dead": lambda client: cli("peek", "jobs", "--dead", "--limit", "1000"),
    "mqlite stats": lambda client: cli("stats"),
    "mqlite health": lambda client: cli("health"),
    "mqlite doctor": lambda client: cli("doctor"),
    "message list": lambda client: get(client, "message_changelist"),
    "dead letter list": lambda client: get(client, "deadletter_changelist"),
    "queue list": lambda client: get(client, "queue_changelist"),
    "subscription list": lambda client: get(client, "subscription_changelist"),
    "overview": lambda client: get(client, "queue_overview"),
    "message pages": lambda client: get_each(client, "message_change", ids()[::7]),
    "body downloads": lambda client: get_each(client, "message_body", ids()[::7]),
    "dead letter pages": lambda client: get_each(
        client, "deadletter_change", DeadLetter.objects.values_list("pk", flat=True)[::3]
    ),
    "queue page": lambda client: get(client, "queue_change", "jobs"),
    "subscription page": lambda client: get(client, "subscription_change", "sound"),
    "redrive selected": lambda client: post(client, DeadLetter, "redrive"),
    "purge selected": lambda client: post(client, DeadLetter, "purge"),
    "pause selected": lambda client: post(client, Queue, "pause"),
    "get": lambda client: [Message.objects.get(pk=id) for id in ids()],
    "filter": lambda client: list(Message.objects.filter(pk__in=ids())),
    "values": lambda client: list(Message.objects.values()),
    "deferred": lambda client: [message.subject for message in Message.objects.only("id")],
    "queues": lambda client: [*Queue.objects.all(), *Subscription.objects.all()],
    "peek": lambda client: Message.objects.peek("jobs", limit=1_000),
    "peek of dead letters": lambda client: DeadLetter.objects.peek("jobs", limit=1_000),
    "arrivals": lambda client: Message.objects.arrivals(0, limit=1_000),
    "find": lambda client: [Message.objects.find(), Message.objects.find(queue="jobs")],
    "explain": lambda client: [Message.objects.explain(id) for id in ids()],
    "claimable": lambda client: Message.objects.claimable(),
    "claim": lambda client: Message.objects.claim("jobs", limit=1_000),
    "claim_deferred": lambda client: Message.objects.claim_deferred("jobs", ids()),
    "claim_and_delete": lambda client: Message.objects.claim_and_delete("jobs", limit=1_000),
    "exchange": lambda client: Message.objects.settle_and_claim(
        [], ["jobs"], limit=1_000, worker="w"
    ),
    "worker": lambda client: drain(),
    "reaper": lambda client: [run_all("default"), release_dead_workers("default")],
    "redrive": lambda client: DeadLetter.objects.redrive_queue("jobs"),
    "redrive into": lambda client: DeadLetter.objects.redrive(ids(), into="sound"),
    "purge": lambda client: DeadLetter.objects.purge_queue("jobs", everything=True),
    "publish": lambda client: publish_to_sound(),
    "get_result": lambda client: get_results(),
}


@pytest.mark.parametrize("reader", READERS)
def test_foreign_row_breaks_no_reader(damaged, admin_client, reader):
    READERS[reader](admin_client)


CLAIMS = {
    "claim": lambda: Message.objects.claim("jobs", limit=3),
    "exchange": lambda: Message.objects.settle_and_claim([], ["jobs"], limit=3, worker="w")[1],
}


@pytest.mark.parametrize("claim", CLAIMS)
@pytest.mark.parametrize("column", ["subject", "group_id", "content_type", "reply_to"])
def test_message_with_text_that_is_not_utf_8_is_dead_and_readable(queue, column, claim):
    for number, text in enumerate(["'a'", NOT_UTF_8, "'b'"]):
        insert_message(State.ACTIVE, 2 * number, **{column: text})

    messages = CLAIMS[claim]()

    (letter,) = DeadLetter.objects.all()
    assert [getattr(message, column) for message in messages] == ["a", "b"]
    assert (getattr(letter, column), letter.dead_letter_reason) == ("f\ufffd", "Unreadable")


def test_text_of_other_tables_is_read_strictly(queue):
    insert_message(State.ACTIVE, 0, subject=NOT_UTF_8)
    Message.objects.peek("jobs")
    Message.objects.get()

    with connection.cursor() as cursor, pytest.raises(OperationalError, match="decode to UTF-8"):
        cursor.execute(f"SELECT {NOT_UTF_8}")
        cursor.fetchall()
