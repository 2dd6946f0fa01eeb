"""The queue's tables in a database of their own."""

from typing import Any

from .conf import get_settings

APP_LABEL = "django_mqlite"


class MqliteRouter:
    """Put it in DATABASE_ROUTERS to keep the queue in MQLITE['DATABASE'].

    The price: an enqueue can no longer join the transaction of a row in another database.
    """

    def db_for_read(self, model: Any, **hints: Any) -> str | None:
        return get_settings().database if model._meta.app_label == APP_LABEL else None

    def db_for_write(self, model: Any, **hints: Any) -> str | None:
        return self.db_for_read(model, **hints)

    def allow_migrate(self, db: str, app_label: str, **hints: Any) -> bool | None:
        wanted = get_settings().database
        if app_label == APP_LABEL and wanted is not None:
            return db == wanted
        return None
