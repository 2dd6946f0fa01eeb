"""More databases of the engine, each a file or memory with an alias."""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread
from typing import Any

from django.db import connections

SETTINGS: dict[str, Any] = {
    "ENGINE": "django_mqlite.sqlite3",
    "ATOMIC_REQUESTS": False,
    "AUTOCOMMIT": True,
    "CONN_MAX_AGE": 0,
    "CONN_HEALTH_CHECKS": False,
    "TIME_ZONE": None,
    "HOST": "",
    "PORT": "",
    "USER": "",
    "PASSWORD": "",
    "TEST": {"CHARSET": None, "COLLATION": None, "MIGRATE": True, "MIRROR": None, "NAME": None},
}


@contextmanager
def database(alias: str, name: object, **options: Any) -> Iterator[Any]:
    """Open `connections[alias]` in every thread, on the file or memory called `name`."""
    settings = {**SETTINGS, "TEST": {**SETTINGS["TEST"]}, "NAME": name, "OPTIONS": options}
    connections.settings[alias] = settings
    try:
        yield connections[alias]
    finally:
        wrapper = connections[alias]
        wrapper.close()
        if wrapper.connection is not None:
            wrapper.connection.close()  # Django keeps one in memory open, and its data with it
        del connections[alias]
        del connections.settings[alias]


def execute(connection: Any, sql: str, params: Any = None) -> list[tuple]:
    with connection.cursor() as cursor:
        cursor.execute(sql, params)
        return cursor.fetchall() if cursor.description else []


class Running(Thread):
    """A function in a thread; `end()` returns the error that it raised."""

    def __init__(self, function, *arguments) -> None:
        super().__init__(daemon=True)
        self._act = function
        self._arguments = arguments
        self.error: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            self._act(*self._arguments)
        except BaseException as error:  # noqa: BLE001 - returned to the test
            self.error = error
        finally:
            connections.close_all()

    def end(self) -> BaseException | None:
        self.join(60)
        assert not self.is_alive(), "the thread hangs"
        return self.error
