"""A database router that keeps the queue's tables in their own database."""

from typing import Any

from django.core.exceptions import ImproperlyConfigured

from .conf import get_settings

APP_LABEL = "django_mqlite"


class MqliteRouter:
    """Keep the queue in MQLITE['DATABASE']. List the router in DATABASE_ROUTERS.

    With a separate database, an enqueue cannot join a transaction of another database.
    """

    def db_for_read(self, model: Any, **hints: Any) -> str | None:
        return get_settings().database if model._meta.app_label == APP_LABEL else None

    def db_for_write(self, model: Any, **hints: Any) -> str | None:
        return self.db_for_read(model, **hints)

    def allow_migrate(self, db: str, app_label: str, **hints: Any) -> bool | None:
        if app_label != APP_LABEL:
            return None
        try:
            database = get_settings().database
        except ImproperlyConfigured:
            return False  # the system checks, which call this as well, report the mistakes
        return None if database is None else db == database
