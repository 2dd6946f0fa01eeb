"""System checks of the settings, the handlers and the database."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any

from django.core.checks import CheckMessage, Error, Tags, Warning, register
from django.core.exceptions import ImproperlyConfigured
from django.db import connections, router
from django.db.utils import OperationalError

from .conf import InvalidSettings, get_settings
from .exceptions import HandlersNotImported
from .handlers import Handler, get_handlers, prepare_task, queues_of_kinds
from .names import suggestion
from .recurring import all_schedules
from .schedules import Schedule
from .schema import schema_differences
from .sqlite3.driver import has_wal_reset_bug
from .store import sqlite as store

PAGE = "docs/checks.md"

Check = Callable[..., list[CheckMessage]]


def with_link(check: Check) -> Check:
    """Add a link to the documentation to the hints of a check."""

    @wraps(check)
    def linked(
        app_configs: Any = None, databases: Sequence[str] | None = None, **_: Any
    ) -> list[CheckMessage]:
        return linked_hints(check(app_configs=app_configs, databases=databases))

    return linked


def linked_hints(messages: list[CheckMessage]) -> list[CheckMessage]:
    """Add a link to the documentation to the hint of each message."""
    for message in messages:
        message.hint = (
            f"{message.hint or ''} See django-mqlite's {PAGE}#{anchor(str(message.id))}.".strip()
        )
    return messages


def anchor(id: str) -> str:
    """Return the anchor of the heading `id`, as Markdown renderers build it."""
    return id.lower().replace(".", "")


OLDEST_SQLITE = (3, 37, 0)  # STRICT tables

WAITING_MODES = ("IMMEDIATE", "EXCLUSIVE")
"""The modes in which a transaction waits for the write lock before it reads."""


def queue_alias() -> str:
    """Return the alias of the database that has the queue's tables."""
    from .models import Message  # noqa: PLC0415 - checks are imported before the models are ready

    return router.db_for_write(Message)


_checked: ContextVar[str | None] = ContextVar("mqlite_checked", default=None)


@contextmanager
def checking(alias: str) -> Iterator[None]:
    """Run the checks on this database instead of the routers' choice."""
    token = _checked.set(alias)
    try:
        yield
    finally:
        _checked.reset(token)


def checked_alias() -> str:
    """Return the alias of the database to check."""
    return _checked.get() or queue_alias()


@register("mqlite")
@with_link
def check_settings(**_: Any) -> list[CheckMessage]:
    """Check that MQLITE is valid."""
    try:
        get_settings()
    except InvalidSettings as error:
        return [Error(mistake, id="mqlite.E001") for mistake in error.mistakes]
    except ImproperlyConfigured as error:
        return [Error(str(error), id="mqlite.E001")]
    return []


@register("mqlite")
@with_link
def check_handlers(**_: Any) -> list[CheckMessage]:
    """Check that the handlers can be imported; a warning, because `migrate` does not need them."""
    if not settings_are_valid():
        return []
    try:
        get_handlers()
    except HandlersNotImported as error:
        return [
            Warning(
                str(error),
                hint="No worker can start until this is fixed. If the module has no handlers, list "
                "the modules that have some in MQLITE['HANDLERS'].",
                id="mqlite.W013",
            )
        ]
    return []


@register("mqlite")
@with_link
def check_schedules(**_: Any) -> list[CheckMessage]:
    """Check that schedules have unique names, and that their tasks can be enqueued."""
    if not settings_are_valid() or check_handlers():
        return []
    try:
        schedules = all_schedules()
    except ImproperlyConfigured as error:
        return [Error(str(error), id="mqlite.E011")]
    return [error for schedule in schedules.values() for error in _check_task(schedule)]


def _check_task(schedule: Schedule) -> Iterator[CheckMessage]:
    if schedule.task is None:
        return
    try:
        prepare_task(schedule)
    except Exception as error:  # noqa: BLE001 - the project's task modules may raise anything
        yield Error(
            f"Schedule {schedule.name!r} cannot enqueue its task: {error}", id="mqlite.E011"
        )


def imported_handlers() -> Mapping[str, Handler]:
    """Return the handlers, or {} if check_handlers reports an error."""
    return {} if check_handlers() else get_handlers()


def settings_are_valid() -> bool:
    """Return whether the settings are valid, which the other checks require."""
    return not check_settings()


@register("mqlite")
@with_link
def check_engine(**_: Any) -> list[CheckMessage]:
    """Check for a recent SQLite and for IMMEDIATE transactions."""
    if not settings_are_valid():
        return []
    connection: Any = connections[checked_alias()]
    if connection.vendor != "sqlite":
        return [
            Error(
                f"The queue needs SQLite; database {connection.alias!r} is {connection.vendor}.",
                hint="Put the queue in a SQLite database with MQLITE['DATABASE'] and MqliteRouter.",
                id="mqlite.E002",
            )
        ]
    return [
        *_check_version(connection),
        *_check_transaction_mode(connection),
        *_check_router(),
    ]


def _check_router() -> list[CheckMessage]:
    configured, alias = get_settings().database, queue_alias()
    if configured in (None, alias):
        return []
    return [
        Warning(
            f"MQLITE['DATABASE'] is {configured!r}, but the queue's tables are in {alias!r}.",
            hint="Add 'django_mqlite.routers.MqliteRouter' to DATABASE_ROUTERS.",
            id="mqlite.W005",
        )
    ]


def _check_version(connection: Any) -> list[CheckMessage]:
    version = connection.Database.sqlite_version_info
    text = ".".join(map(str, version))
    if version < OLDEST_SQLITE:
        return [
            Error(
                f"SQLite {text} has no STRICT tables: 3.37 or later is required.",
                hint="Use a newer Python, or install django-mqlite[sqlite].",
                id="mqlite.E003",
            )
        ]
    if has_wal_reset_bug(version):
        return [
            Warning(
                f"SQLite {text} has the WAL-reset bug: in rare cases, a checkpoint during a write "
                "damages the file.",
                hint="Use SQLite 3.53 or later (or 3.51.3, 3.50.7, 3.44.6), or silence this check.",
                id="mqlite.W001",
            )
        ]
    return []


def mode_of(connection: Any) -> str:
    """Return the transaction mode; only the connection knows the default of its engine."""
    connection.get_connection_params()  # opens nothing
    return str(connection.transaction_mode or "DEFERRED")


def _check_transaction_mode(connection: Any) -> list[CheckMessage]:
    mode = mode_of(connection)
    if mode in WAITING_MODES:
        return []
    return [
        Warning(
            f"Transactions of database {connection.alias!r} begin as {mode}: one that reads and "
            'then writes fails with "database is locked" if another writer was faster.',
            hint="Use the engine django_mqlite.sqlite3, or OPTIONS = sqlite_options().",
            id="mqlite.W002",
        )
    ]


@register("mqlite", Tags.database)
@with_link
def check_database(databases: Sequence[str] | None = None, **_: Any) -> list[CheckMessage]:
    """Check journal mode, schema and the handlers' queues, if the database may be queried."""
    alias = checked_alias()
    connection = connections[alias]
    if not settings_are_valid() or connection.vendor != "sqlite" or alias not in (databases or ()):
        return []
    try:
        return [
            *_check_journal_mode(connection),
            *_check_schema(connection),
            *_check_handlers(connection),
            *_check_schedules(connection),
        ]
    except OperationalError as error:
        return [
            Error(
                f"Database {alias!r} cannot be opened: {error}",
                hint="Check NAME in DATABASES, and the owner of the file and its directory.",
                id="mqlite.E004",
            )
        ]


def _check_journal_mode(connection: Any) -> list[CheckMessage]:
    with connection.cursor() as cursor:
        ((mode,),) = cursor.execute("PRAGMA journal_mode").fetchall()
    if mode in ("wal", "memory"):
        return []
    return [
        Warning(
            f"Database {connection.alias!r} is in journal mode {mode}: readers block the writer.",
            hint="Use the engine django_mqlite.sqlite3, or OPTIONS = sqlite_options().",
            id="mqlite.W003",
        )
    ]


def _check_schema(connection: Any) -> list[CheckMessage]:
    differences = schema_differences(connection)
    if not differences:
        return []
    return [
        Error(
            f"The queue's tables in database {connection.alias!r} differ from what their "
            f"migrations created: {'; '.join(differences)}.",
            hint="Messages may be stored and never delivered. Restore a backup, or create what is "
            "missing with the statements of `manage.py sqlmigrate django_mqlite 0001`.",
            id="mqlite.E010",
        )
    ]


def _known_queues(connection: Any) -> set[str]:
    return {*get_settings().queues, *queues_of_kinds(), *_existing_queues(connection)}


def _check_schedules(connection: Any) -> list[CheckMessage]:
    if check_handlers() or check_schedules():
        return []
    known = _known_queues(connection)
    return [
        Warning(
            f"Schedule {schedule.name!r} enqueues messages in queue {schedule.queue!r}, which does "
            f"not exist and is not in MQLITE['QUEUES']{suggestion(schedule.queue, known)}.",
            hint="Declare the queue and run migrate, or call Queue.objects.create_queue().",
            id="mqlite.W015",
        )
        for schedule in all_schedules().values()
        if known and schedule.task is None and schedule.queue not in known
    ]


def _check_handlers(connection: Any) -> list[CheckMessage]:
    known = _known_queues(connection)
    return [
        Warning(
            f"{handler.path} handles queue {queue!r}, which does not exist and is not in "
            f"MQLITE['QUEUES']{suggestion(queue, known)}.",
            hint="Declare the queue and run migrate, or call Queue.objects.create_queue(). Workers "
            "serve the other queues.",
            id="mqlite.W004",
        )
        for queue, handler in imported_handlers().items()
        if known and queue not in known
    ]


def _existing_queues(connection: Any) -> list[str]:
    """Return the queues of the database; there are none before the first migrate."""
    if "mqlite_queues" not in connection.introspection.table_names():
        return []
    return store.queues.queue_names(connection)
