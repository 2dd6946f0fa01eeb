"""System checks of settings and database, which report what would break the promises."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any

from django.core.checks import CheckMessage, Error, Tags, Warning, register
from django.core.exceptions import ImproperlyConfigured
from django.db import connections, router
from django.db.utils import OperationalError

from .conf import get_settings
from .exceptions import HandlersNotImported
from .handlers import Handler, get_handlers, queues_of_kinds
from .names import suggestion
from .schema import schema_differences
from .sqlite3.driver import has_wal_reset_bug
from .store import sqlite as store

PAGE = "docs/checks.md"

Check = Callable[..., list[CheckMessage]]


def with_link(check: Check) -> Check:
    """The check, with the place where there is more to read at the end of every hint."""

    @wraps(check)
    def linked(
        app_configs: Any = None, databases: Sequence[str] | None = None, **_: Any
    ) -> list[CheckMessage]:
        return linked_hints(check(app_configs=app_configs, databases=databases))

    return linked


def linked_hints(messages: list[CheckMessage]) -> list[CheckMessage]:
    """The messages, each with that place at the end of its hint."""
    for message in messages:
        message.hint = (
            f"{message.hint or ''} See django-mqlite's {PAGE}#{anchor(str(message.id))}.".strip()
        )
    return messages


def anchor(id: str) -> str:
    """Of a heading that is the id, as Markdown renderers make it."""
    return id.lower().replace(".", "")


OLDEST_SQLITE = (3, 37, 0)  # STRICT tables

WAITING_MODES = ("IMMEDIATE", "EXCLUSIVE")
"""A transaction that begins so waits for its turn before it has read anything."""


def queue_alias() -> str:
    """The alias of the database the queue's tables are in."""
    from .models import Message  # noqa: PLC0415 - checks are imported before the models are ready

    return router.db_for_write(Message)


_checked: ContextVar[str | None] = ContextVar("mqlite_checked", default=None)


@contextmanager
def checking(alias: str) -> Iterator[None]:
    """Have the checks look at this database, whatever the routers name."""
    token = _checked.set(alias)
    try:
        yield
    finally:
        _checked.reset(token)


def checked_alias() -> str:
    """The alias of the database that the checks look at."""
    return _checked.get() or queue_alias()


@register("mqlite")
@with_link
def check_settings(**_: Any) -> list[CheckMessage]:
    """MQLITE can be read."""
    try:
        get_settings()
    except ImproperlyConfigured as error:
        return [Error(str(error), id="mqlite.E001")]
    return []


@register("mqlite")
@with_link
def check_handlers(**_: Any) -> list[CheckMessage]:
    """The project's handlers can be imported; a warning, because `migrate` needs none of them."""
    if not is_readable():
        return []
    try:
        get_handlers()
    except HandlersNotImported as error:
        return [
            Warning(
                str(error),
                hint="No worker starts until it can. If the module is not about messages, name "
                "those that are in MQLITE['HANDLERS'].",
                id="mqlite.W013",
            )
        ]
    return []


def imported_handlers() -> Mapping[str, Handler]:
    """None where check_handlers has something to say."""
    return {} if check_handlers() else get_handlers()


def is_readable() -> bool:
    """Return whether check_settings finds no mistake; the other checks need valid settings."""
    return not check_settings()


@register("mqlite")
@with_link
def check_engine(**_: Any) -> list[CheckMessage]:
    """The queue's database is SQLite, new enough, and its transactions begin IMMEDIATE."""
    if not is_readable():
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
    wanted, alias = get_settings().database, queue_alias()
    if wanted in (None, alias):
        return []
    return [
        Warning(
            f"MQLITE['DATABASE'] is {wanted!r}, but the queue's tables are in {alias!r}.",
            hint="Add 'django_mqlite.routers.MqliteRouter' to DATABASE_ROUTERS.",
            id="mqlite.W005",
        )
    ]


def _check_version(connection: Any) -> list[CheckMessage]:
    version = connection.Database.sqlite_version_info
    said = ".".join(map(str, version))
    if version < OLDEST_SQLITE:
        return [
            Error(
                f"SQLite {said} has no STRICT tables; 3.37 is the oldest that has.",
                hint="Use a newer Python, or install django-mqlite[sqlite].",
                id="mqlite.E003",
            )
        ]
    if has_wal_reset_bug(version):
        return [
            Warning(
                f"SQLite {said} has the WAL-reset bug: a checkpoint that races a write can corrupt "
                "the file, very rarely.",
                hint="Use SQLite 3.53 or later (or 3.51.3, 3.50.7, 3.44.6), or silence this.",
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
            f"Transactions of database {connection.alias!r} begin {mode}: one that reads and then "
            'writes fails with "database is locked" whenever another writer was faster.',
            hint="Use the engine django_mqlite.sqlite3, or OPTIONS = sqlite_options().",
            id="mqlite.W002",
        )
    ]


@register("mqlite", Tags.database)
@with_link
def check_database(databases: Sequence[str] | None = None, **_: Any) -> list[CheckMessage]:
    """Check journal mode, schema and the handlers' queues, where the database may be asked."""
    alias = checked_alias()
    connection = connections[alias]
    if not is_readable() or connection.vendor != "sqlite" or alias not in (databases or ()):
        return []
    try:
        return [
            *_check_journal_mode(connection),
            *_check_shape(connection),
            *_check_handlers(connection),
        ]
    except OperationalError as error:
        return [
            Error(
                f"Database {alias!r} cannot be opened: {error}",
                hint="Look at NAME in DATABASES, and whose the file and its directory are.",
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
            f"Database {connection.alias!r} is in journal mode {mode}: readers stop the writer.",
            hint="Use the engine django_mqlite.sqlite3, or OPTIONS = sqlite_options().",
            id="mqlite.W003",
        )
    ]


def _check_shape(connection: Any) -> list[CheckMessage]:
    differences = schema_differences(connection)
    if not differences:
        return []
    return [
        Error(
            f"The queue's tables in database {connection.alias!r} are not as their migrations "
            f"created them: {'; '.join(differences)}.",
            hint="Without them messages can be stored and never delivered. Restore a backup, or "
            "create what is missing with the statements of `manage.py sqlmigrate django_mqlite "
            "0001`.",
            id="mqlite.E010",
        )
    ]


def _check_handlers(connection: Any) -> list[CheckMessage]:
    known = {*get_settings().queues, *queues_of_kinds(), *_existing_queues(connection)}
    return [
        Warning(
            f"{handler.path} handles queue {queue!r}, which is not there and which "
            f"MQLITE['QUEUES'] does not declare{suggestion(queue, known)}.",
            hint="Declare it and run migrate, or create it with Queue.objects.create_queue().",
            id="mqlite.W004",
        )
        for queue, handler in imported_handlers().items()
        if known and queue not in known
    ]


def _existing_queues(connection: Any) -> list[str]:
    """None are there before the first migrate."""
    if "mqlite_queues" not in connection.introspection.table_names():
        return []
    return store.queues.queue_names(connection)
