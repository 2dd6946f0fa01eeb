"""Run the blocks of the how-to pages that work without a larger project."""

import logging
import logging.config
import sqlite3
import subprocess
import sys
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from django import VERSION
from django.contrib.auth.models import Group
from django.db import connections
from django.db.models import IntegerField, Model

from django_mqlite import LockLost, enqueue_many
from django_mqlite.handlers import Handler, _handlers
from django_mqlite.models import Message, Subscription
from django_mqlite.signals import message_dead_lettered
from django_mqlite.testing import drain
from tests.support.pages import blocks_of
from tests.support.source import ROOT
from tests.support.verbs import dead_letter
from tests.support.waiting import PATIENCE


def block(page: str, containing: str) -> str:
    """Return the only Python block of the page that contains the text."""
    blocks = blocks_of(ROOT / "docs" / "how-to" / f"{page}.md")
    texts = [block.text for block in blocks if block.language == "python"]
    (text,) = [text for text in texts if containing in text]
    return text


@pytest.fixture
def own_handlers(monkeypatch):
    """Remove the handlers that a page registers after the test."""
    monkeypatch.setattr("django_mqlite.handlers._handlers", dict(_handlers))


class Order:
    """Stand for a reader's model."""

    @staticmethod
    def _create(*, customer, article):
        return Group.objects.create(name=f"{customer} {article}")

    objects = SimpleNamespace(create=_create)


@pytest.mark.django_db(transaction=True)
def test_order_and_message_commit_together(make_queue):
    make_queue("order-events", ordering_mode="group_fifo")
    names = {"Order": Order}
    exec(block("transaction", "def place"), names)

    order, message = names["place"](7, "teapot")

    assert Group.objects.get().pk == order.pk
    assert Message.objects.get().pk == message.pk
    assert message.group_id == "customer-7"


@pytest.mark.django_db(transaction=True)
def test_refused_completion_rolls_the_writes_back(make_queue, clock):
    make_queue("stock")
    Message.objects.enqueue("stock", {"article": 17})
    booked = []

    def book(data):
        Group.objects.create(name="booked")
        booked.append(data)
        clock.advance(3600)  # the lease expires

    with pytest.raises(LockLost):
        exec(block("exactly-once", "book("), {"book": book})

    assert booked == [{"article": 17}]
    assert not Group.objects.exists()


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("own_handlers")
def test_topic_reaches_subscriptions_whose_filter_matches(make_queue):
    pytest.importorskip("cel", reason="NOT TESTED: the extra [filters] is absent")
    names: dict = {}
    exec(block("topics", "def subscribe"), names)
    names["subscribe"]()
    names["subscribe"]()  # as every migrate does

    exec(block("topics", "publish("), names)
    exec(block("topics", '@handler("customs")'), names)

    assert {copy.queue for copy in names["copies"]} == {"stock-of-orders", "customs"}
    assert Subscription.objects.count() == 2


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("own_handlers")
def test_documented_rate_lets_through_what_the_page_says(make_queue, mqlite_clock, mqlite_drain):
    settings: dict = {}
    exec(block("limit-deliveries", "MQLITE = "), settings)
    for name, options in settings["MQLITE"]["QUEUES"].items():
        make_queue(name, **options)
    answers = [SimpleNamespace(status_code=429, headers={"Retry-After": "30"})]
    ok = SimpleNamespace(status_code=200)
    names = {"enqueue_many": enqueue_many, "post": lambda data: answers.pop() if answers else ok}
    exec(block("limit-deliveries", "status_code == 429"), names)
    exec(block("limit-deliveries", "range(150)"), names)

    names["test_a_hundred_invoices_a_minute"](mqlite_clock, mqlite_drain)

    assert Message.objects.filter(state="scheduled", uncounted_retries=1).count() == 1


@pytest.fixture
def workflow(monkeypatch):
    """The module of a reader, with the tasks of the page and a model of their own."""
    module = ModuleType("workflow_of_a_reader")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    with connections["default"].cursor() as cursor:
        cursor.execute("CREATE TABLE import (id INTEGER PRIMARY KEY, open_pages INTEGER)")

    class Import(Model):  # noqa: DJ008 - nobody prints it
        open_pages = IntegerField()

        class Meta:
            app_label = "workflow_of_a_reader"
            db_table = "import"

    vars(module).update(Import=Import, saved=[])
    source = block("workflow", "def load_page")
    if find_spec("django.tasks") is None:
        source = source.replace("from django.tasks import", "from django_tasks import")
    exec(source, vars(module))
    yield module
    with connections["default"].cursor() as cursor:
        cursor.execute("DROP TABLE import")


@pytest.mark.rule("3.10")
@pytest.mark.django_db(transaction=True)
def test_workflow_counts_every_step_once_and_finishes_once(make_queue, workflow):
    make_queue("default")
    failures = [ConnectionError(), ConnectionError()]

    def save_page(page):
        Group.objects.create(name=f"page {page}")
        if failures and page == 2:
            raise failures.pop()

    workflow.save_page = save_page
    result = workflow.start.enqueue([1, 2, 3])

    deliveries = drain("default")

    assert workflow.start.get_result(result.id).status == "SUCCESSFUL"
    assert sorted(Group.objects.values_list("name", flat=True)) == ["page 1", "page 2", "page 3"]
    assert workflow.Import.objects.count() == 0
    paths = [message.subject.rpartition(".")[2] for message in deliveries]
    assert paths.count("finish") == 1
    assert paths.count("load_page") == 5


SETTINGS = """
from pathlib import Path
BASE_DIR = Path({directory!r})
INSTALLED_APPS = ["django_mqlite"]
DATABASES = {{
    "default": {{"ENGINE": "django.db.backends.sqlite3", "NAME": BASE_DIR / "db.sqlite3"}}
}}
SECRET_KEY = "x"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
"""


def manage(directory: Path, *arguments: str) -> str:
    process = subprocess.run(
        [sys.executable, "-m", "django", *arguments, "--settings", "reader_settings"],
        cwd=directory,
        env={"PYTHONPATH": f"{directory}:{ROOT}", "PATH": ""},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=True,
    )
    return process.stdout + process.stderr


def write_settings(directory: Path, block: str) -> None:
    text = SETTINGS.format(directory=str(directory)) + block
    (directory / "reader_settings.py").write_text(text)


def test_router_keeps_queues_in_a_second_database(tmp_path):
    write_settings(tmp_path, block("second-database", "MqliteRouter"))

    manage(tmp_path, "migrate", "--verbosity=0")
    manage(tmp_path, "migrate", "--verbosity=0", "--database", "queue")

    with closing(sqlite3.connect(tmp_path / "queue.sqlite3")) as queue:
        names = queue.execute("SELECT name FROM mqlite_queues").fetchall()
    with closing(sqlite3.connect(tmp_path / "db.sqlite3")) as default:
        (tables,) = default.execute(
            "SELECT count(*) FROM sqlite_master WHERE name LIKE 'mqlite%'"
        ).fetchone()
    assert names == [("confirmations",)]
    assert tables == 0


@pytest.mark.parametrize(
    ("page", "containing", "check"),
    [
        ("durability", "synchronous", "mqlite.W002"),
        ("database-is-locked", "ENGINE", "mqlite.W002"),
        ("upgrade-sqlite", "SILENCED", "mqlite.W001"),
    ],
)
def test_settings_of_a_page_solve_the_warning(tmp_path, page, containing, check):
    write_settings(tmp_path, block(page, containing))

    assert check not in manage(tmp_path, "check", "--database", "default")


@pytest.mark.django_db(transaction=True)
def test_long_transaction_is_logged(caplog):
    names: dict = {}
    exec(block("database-is-locked", "def timed_atomic"), names)
    seconds = iter([10.0, 10.5, 20.0, 20.01])
    names["time"] = SimpleNamespace(monotonic=lambda: next(seconds))

    with names["timed_atomic"]():
        pass
    with names["timed_atomic"]():
        pass

    (record,) = [record for record in caplog.records if record.name == "shop"]
    assert "took 0.50 s" in record.getMessage()
    assert connections["default"].get_autocommit()


@pytest.fixture
def failing_task(make_queue, monkeypatch):
    """A queue whose handler fails in each of its three deliveries."""

    def fail(message):
        raise KeyError("no such article")

    make_queue("orders", max_delivery_count=3)
    handler = Handler(queue="orders", function=fail)
    monkeypatch.setattr("django_mqlite.handlers._handlers", {"orders": handler})
    Message.objects.enqueue("orders", {"card": "41" * 2})
    return drain


@pytest.fixture
def admins(settings):
    """The address of the administrators, in the notation of the Django in use."""
    address = "operations@example.com"
    settings.ADMINS = [address] if VERSION >= (6, 0) else [("Operations", address)]
    # Django 6.1 warns where a project that sends mail has no MAILERS; older ones ignore it.
    settings.MAILERS = {"default": {"BACKEND": "django.core.mail.backends.locmem.EmailBackend"}}
    return address


@pytest.fixture
def sentry_events(monkeypatch):
    """The events that the Sentry SDK sends, with its integration for logging."""
    sentry_sdk = pytest.importorskip("sentry_sdk", reason="NOT TESTED: sentry-sdk is absent")
    from sentry_sdk.integrations.logging import LoggingIntegration  # noqa: PLC0415
    from sentry_sdk.transport import Transport  # noqa: PLC0415

    events: list = []

    class Recorder(Transport):
        def capture_envelope(self, envelope):
            events.append(envelope.get_event())

    def init(dsn):
        real_init(
            dsn=dsn,
            transport=Recorder,
            default_integrations=False,
            auto_enabling_integrations=False,
            integrations=[LoggingIntegration()],
        )

    real_init = sentry_sdk.init
    monkeypatch.setattr(sentry_sdk, "init", init)
    yield events
    sentry_sdk.get_global_scope().set_client(None)


@pytest.mark.django_db(transaction=True)
def test_dead_letter_is_one_event_in_sentry(failing_task, sentry_events):
    exec(block("sentry", "sentry_sdk.init"), {})
    names: dict = {}
    exec(block("sentry", "def report_dead_letter"), names)
    message_dead_lettered.connect(names["report_dead_letter"])
    try:
        failing_task(retries=True)
    finally:
        message_dead_lettered.disconnect(names["report_dead_letter"])

    (event,) = sentry_events
    assert event["exception"]["values"][0]["type"] == "KeyError"
    assert event["tags"]["queue"] == "orders"
    assert event["contexts"]["message"] == {
        "queue": "orders",
        "sequence number": Message.objects.get().pk,
        "delivery": 3,
    }
    assert "4141" not in str(event)


@pytest.mark.django_db(transaction=True)
def test_dead_letter_is_one_mail_to_the_admins(failing_task, admins, mailoutbox):
    names: dict = {}
    exec(block("alerts", "LOGGING"), names)
    logger = logging.getLogger("django_mqlite")
    before = (list(logger.handlers), logger.level, logger.propagate)
    logging.config.dictConfig(names["LOGGING"])
    try:
        failing_task(retries=True)
    finally:
        logger.handlers, logger.level, logger.propagate = before

    (mail,) = mailoutbox
    assert mail.to == names["ADMINS"] == [admins]
    assert f"#{Message.objects.get().pk} of orders is a dead letter" in mail.subject
    assert "4141" not in mail.subject + mail.body


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("own_handlers")
def test_summary_of_dead_letters_is_mailed(make_queue, admins, mailoutbox, monkeypatch):
    monkeypatch.setattr("django_mqlite.recurring._declared", {})
    make_queue("dead-letter-summary")
    make_queue("jobs")
    names: dict = {}
    exec(block("alerts", "def mail_summary"), names)

    names["mail_summary"](None)
    dead_letter("jobs")
    names["mail_summary"](None)

    (mail,) = mailoutbox
    assert "jobs: 1 in the last hour" in mail.body
