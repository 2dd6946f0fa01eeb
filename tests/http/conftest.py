"""One server of each kind for all tests, on one database."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.http.serving import KINDS, Client, Server, start_server
from tests.support.waiting import PATIENCE
from tests.support.workers import ALIAS, WorkerDatabase


@pytest.fixture(scope="package")
def served_file(tmp_path_factory, migrated_file) -> Path:
    """The database of the servers."""
    return Path(shutil.copy(migrated_file, tmp_path_factory.mktemp("served") / "queue.sqlite3"))


@pytest.fixture(scope="package")
def servers(served_file) -> Iterator[dict[str, Server]]:
    started: dict[str, Server] = {}
    yield started
    for server in started.values():
        server.end()


@pytest.fixture(scope="package")
def http() -> Iterator[httpx.Client]:
    with httpx.Client(timeout=PATIENCE) as client:
        yield client


@pytest.fixture
def server_of(servers, served_file):
    """Return the running server of a kind."""

    def server_of(kind: str) -> Server:
        if kind not in servers:
            log = served_file.with_name(f"{kind}.log")
            servers[kind] = start_server(kind, served_file, log)
        servers[kind].wait_ready()
        return servers[kind]

    return server_of


@pytest.fixture(params=KINDS)
def server(request, server_of) -> Server:
    """A server of each kind."""
    return server_of(request.param)


@pytest.fixture
def client(server, http) -> Client:
    return Client(url=server.url, http=http)


@pytest.fixture
def file(served_file, django_db_blocker) -> Iterator[WorkerDatabase]:
    """The database of the servers, as the test sees it."""
    from django.db import connections  # noqa: PLC0415 - not before the settings

    connections.settings[ALIAS] = {**connections.settings["default"], "NAME": str(served_file)}
    database = WorkerDatabase(path=served_file, beside=served_file.parent)
    with django_db_blocker.unblock():
        try:
            yield database
        finally:
            database.close()
            del connections[ALIAS]
            del connections.settings[ALIAS]
