"""The app: its queues are synced after migrate, its log receivers and checks connected."""

from contextlib import suppress
from typing import Any

from django.apps import AppConfig
from django.conf import settings
from django.db import connections
from django.db.models.signals import post_migrate
from django.utils.module_loading import import_string
from django.utils.translation import gettext_lazy as _


class MqliteConfig(AppConfig):
    name = "django_mqlite"
    verbose_name = _("Message queue")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from . import checks, deployment_checks  # noqa: F401, PLC0415 - registers them
        from .signals import connect_logging  # noqa: PLC0415 - nothing before the apps are ready

        connect_logging()
        load_task_backends()
        # flush sends post_migrate as well, so tests that truncate keep their queues.
        post_migrate.connect(sync_queues, sender=self)


def load_task_backends() -> None:
    """Import the backends named in TASKS: ours makes its queues and its messages known by that.

    One that cannot be imported is the tasks framework's to complain of, when it is used.
    """
    for options in getattr(settings, "TASKS", {}).values():
        with suppress(ImportError):
            import_string(options["BACKEND"])


def sync_queues(*, using: str, **_: Any) -> None:
    """Bring the queues declared in settings into a database that has their table."""
    from .models import Queue  # noqa: PLC0415 - the registry is ready only now

    if Queue._meta.db_table in connections[using].introspection.table_names():
        Queue.objects.db_manager(using).sync()
