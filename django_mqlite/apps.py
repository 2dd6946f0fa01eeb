"""The app config: registers checks and log receivers, and syncs queues after migrate."""

from collections.abc import Iterator
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from django.apps import AppConfig
from django.conf import settings
from django.db import connections, router
from django.db.migrations import Migration
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.state import ProjectState
from django.db.models.signals import post_migrate, pre_migrate
from django.utils.module_loading import import_string
from django.utils.translation import gettext_lazy as _

from . import migrations


class MqliteConfig(AppConfig):
    name = "django_mqlite"
    verbose_name = _("Message queue")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from . import checks, deployment_checks, drift_checks  # noqa: F401, PLC0415 - registers them
        from .signals import connect_logging  # noqa: PLC0415 - only when the apps are ready

        connect_logging()
        imported_backends()  # this package's backend registers its queues and message kind
        pre_migrate.connect(create_schema_without_migrations, sender=self)
        # flush sends post_migrate as well, so tests that truncate keep their queues.
        post_migrate.connect(sync_queues, sender=self)


def imported_backends() -> dict[str, Any]:
    """Import the backends in TASKS and return them by alias.

    A backend that cannot be imported is skipped: the tasks framework reports it when it is used.
    The package's own backend raises an error that names the package to install.
    """
    backends = {}
    for alias, options in getattr(settings, "TASKS", {}).items():
        path = str(options.get("BACKEND"))
        try:
            backends[alias] = import_string(path)
        except Exception:  # a module may raise anything when it is imported
            if path.startswith("django_mqlite."):
                raise
    return backends


def create_schema_without_migrations(*, using: str, **_: Any) -> None:
    """Create the tables if the project has turned migrations off, for example in its tests.

    Django would create them from the models, without defaults, triggers and partial indexes.
    """
    if not _has_migrations() and _needs_tables(using):
        state = ProjectState()
        with connections[using].schema_editor() as editor:
            for migration in _package_migrations():
                state = migration.apply(state, editor)


def _has_migrations() -> bool:
    module, _is_explicit = MigrationLoader.migrations_module(MqliteConfig.name)
    return module is not None


def _needs_tables(using: str) -> bool:
    from .models import Queue  # noqa: PLC0415 - the registry is ready only now

    connection = connections[using]
    if connection.vendor != "sqlite" or not router.allow_migrate_model(using, Queue):
        return False
    return Queue._meta.db_table not in connection.introspection.table_names()


def _package_migrations() -> Iterator[Migration]:
    """Yield the package's migrations in order, regardless of MIGRATION_MODULES."""
    for name in sorted(module.name for module in iter_modules(migrations.__path__)):
        if not name.startswith("_"):
            module = import_module(f"{migrations.__name__}.{name}")
            yield module.Migration(name, MqliteConfig.name)


def sync_queues(*, using: str, **_: Any) -> None:
    """Store the queues that settings declare, if the database has their table."""
    from .models import Queue  # noqa: PLC0415 - the registry is ready only now

    if Queue._meta.db_table in connections[using].introspection.table_names():
        Queue.objects.db_manager(using).sync()
