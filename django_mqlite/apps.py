"""The app: its queues are synced after migrate, its log receivers and checks connected."""

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
        imported_backends()  # ours makes its queues and its messages known by that
        # flush sends post_migrate as well, so tests that truncate keep their queues.
        post_migrate.connect(sync_queues, sender=self)


def imported_backends() -> dict[str, Any]:
    """Import the backends named in TASKS, by alias.

    One that cannot be imported is the tasks framework's to complain of, when it is used. Ours says
    what is to be installed.
    """
    backends = {}
    for alias, options in getattr(settings, "TASKS", {}).items():
        path = str(options.get("BACKEND"))
        try:
            backends[alias] = import_string(path)
        except Exception:  # whatever a module does that is being imported
            if path.startswith("django_mqlite."):
                raise
    return backends


def sync_queues(*, using: str, **_: Any) -> None:
    """Bring the queues declared in settings into a database that has their table."""
    from .models import Queue  # noqa: PLC0415 - the registry is ready only now

    if Queue._meta.db_table in connections[using].introspection.table_names():
        Queue.objects.db_manager(using).sync()
