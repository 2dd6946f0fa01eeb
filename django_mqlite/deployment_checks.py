"""System checks of the deployment: requests, timeouts, file systems and handlers."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from django.apps import AppConfig, apps
from django.core.checks import CheckMessage, Tags, Warning, register
from django.core.management import find_commands, get_commands
from django.db import connections
from django.db.utils import OperationalError

from .checks import (
    WAITING_MODES,
    checked_alias,
    imported_handlers,
    mode_of,
    settings_are_valid,
    with_link,
)
from .conf import get_settings
from .doorbell import database_path
from .store import sqlite as store

MIN_TIMEOUT = 2.0
"""Seconds: a reaper or purge batch can hold the write lock for a fraction of a second."""

OFF = 0

NETWORK_FILE_SYSTEMS = frozenset(
    {
        "9p", "acfs", "afpfs", "afs", "beegfs", "ceph", "cifs", "coda", "davfs", "fuse.ceph",
        "fuse.cephfs", "fuse.davfs2", "fuse.glusterfs", "fuse.grpcfuse",
        "fuse.rclone", "fuse.s3fs", "fuse.sshfs", "gfs2", "glusterfs", "gpfs", "lustre", "ncpfs",
        "nfs", "nfs3", "nfs4", "ocfs2", "prl_fs", "smb", "smb2", "smb3", "smbfs", "vboxsf",
        "virtiofs", "vmhgfs", "webdav",
    }
)  # fmt: skip
"""File systems on other machines, or shared with the host of a virtual machine."""


@register("mqlite")
@with_link
def check_deployment(**_: Any) -> list[CheckMessage]:
    """Run the checks that do not open the database."""
    if not settings_are_valid():
        return []
    connection: Any = connections[checked_alias()]
    if connection.vendor != "sqlite":
        return []
    return [
        *_check_atomic_requests(connection),
        *_check_timeout(connection),
        *_check_directory(connection.alias),
        *_check_aliases(connection.alias),
        *_check_atomic_handlers(),
        *_check_commands(),
    ]


@register("mqlite", Tags.database)
@with_link
def check_synchronous(databases: Sequence[str] | None = None, **_: Any) -> list[CheckMessage]:
    """Warn if an acknowledged commit may not be on the disk."""
    alias = checked_alias()
    connection = connections[alias]
    if not settings_are_valid() or connection.vendor != "sqlite" or alias not in (databases or ()):
        return []
    try:
        facts = store.database_file.file_facts(connection)
    except OperationalError:
        return []  # check_database reports the error
    if facts.synchronous != OFF:
        return []
    return [
        Warning(
            f"Database {alias!r} runs with synchronous=OFF: a power failure can lose acknowledged "
            "messages and damage the file.",
            hint="Use FULL, or NORMAL if a power failure may lose the last commits.",
            id="mqlite.W008",
        )
    ]


def _check_atomic_requests(connection: Any) -> Iterator[CheckMessage]:
    if not connection.settings_dict.get("ATOMIC_REQUESTS"):
        return
    if mode_of(connection) in WAITING_MODES:
        yield Warning(
            f"Database {connection.alias!r} has ATOMIC_REQUESTS, and its transactions begin "
            "IMMEDIATE: every request holds the write lock until it ends, even if it only reads, "
            "so requests and workers run one at a time.",
            hint="Remove ATOMIC_REQUESTS and use transaction.atomic() around the writes that "
            "belong together.",
            id="mqlite.W006",
        )


def _check_timeout(connection: Any) -> Iterator[CheckMessage]:
    timeout = float(connection.get_connection_params().get("timeout", 5.0))
    if timeout < MIN_TIMEOUT:
        yield Warning(
            f"Database {connection.alias!r} waits at most {timeout:g} s for another writer: "
            'a short burst of writes is enough to raise "database is locked".',
            hint="Set OPTIONS['timeout'] to 5 or more seconds.",
            id="mqlite.W007",
        )


def _check_directory(alias: str) -> Iterator[CheckMessage]:
    path = database_path(alias)
    if path is None or not path.parent.is_dir():
        return
    directory = path.resolve().parent
    kind = file_system_of(directory)
    if kind in NETWORK_FILE_SYSTEMS:
        yield Warning(
            f"Database {alias!r} is on a network file system ({kind}): SQLite's locks and its "
            "write-ahead log do not work across machines, and the file can be damaged.",
            hint="Put the file on a local disk, with everything that uses it on the same machine.",
            id="mqlite.W009",
        )
    if not os.access(directory, os.W_OK | os.X_OK):
        yield Warning(
            f"The directory {directory} is not writable by this user: SQLite has to create the "
            "write-ahead log beside the file, so nothing can be enqueued.",
            hint="Give the user of the web server and the workers write access to the directory, "
            "not only to the file.",
            id="mqlite.W010",
        )


def _check_aliases(alias: str) -> Iterator[CheckMessage]:
    file = database_path(alias)
    if file is None:
        return
    for other in connections.all():
        if other.alias == alias or other.vendor != "sqlite":
            continue
        if _is_same(file, database_path(other.alias)):
            yield Warning(
                f"Databases {alias!r} and {other.alias!r} are the same file ({file}): a write "
                "through one alias blocks on a transaction of the other until the timeout.",
                hint="Use one alias for the file.",
                id="mqlite.W014",
            )


def _is_same(file: Path, other: Path | None) -> bool:
    if other is None:
        return False
    both_exist = file.exists() and other.exists()
    return file.samefile(other) if both_exist else file.resolve() == other.resolve()


def file_system_of(directory: Path) -> str:
    """Return the type of the directory's file system, or '' if it is unknown."""
    import psutil  # noqa: PLC0415 - web processes import this module without running its checks

    mounted = {
        Path(partition.mountpoint): partition.fstype
        for partition in psutil.disk_partitions(all=True)
    }
    ancestors = [directory, *directory.parents]
    return next((mounted[path] for path in ancestors if path in mounted), "")


def _check_commands() -> Iterator[CheckMessage]:
    """Yield a warning for each command that another app has as well, such as Channels' runworker.

    The first app in INSTALLED_APPS wins.
    """
    own = apps.get_app_config("django_mqlite")
    others = [config for config in apps.get_app_configs() if config is not own]
    for name in _commands_of(own):
        for other in others:
            if name in _commands_of(other):
                winner = get_commands()[name]
                yield Warning(
                    f"{own.name} and {other.name} have the command {name!r}: `manage.py {name}` "
                    f"runs that of {winner}, which is listed first in INSTALLED_APPS.",
                    hint="`manage.py mqlite worker` is always the worker of this package."
                    if name == "runworker"
                    else "The order of INSTALLED_APPS decides.",
                    id="mqlite.W018",
                )


def _commands_of(config: AppConfig) -> list[str]:
    return find_commands(str(Path(config.path) / "management"))


def _check_atomic_handlers() -> Iterator[CheckMessage]:
    declared = get_settings().queues
    for queue, handler in imported_handlers().items():
        lock_ms = declared[queue].lock_duration_ms if queue in declared else None
        timeout_ms = handler.timeout_ms
        if handler.atomic and lock_ms and timeout_ms and timeout_ms >= lock_ms:
            yield Warning(
                f"{handler.path} is atomic and may run for {timeout_ms / 1000:g} s, but a lease of "
                f"queue {queue!r} lasts {lock_ms / 1000:g} s and cannot be renewed while it runs: "
                "each delivery that takes longer is rolled back.",
                hint="Make the handler's timeout shorter than the queue's lock_duration.",
                id="mqlite.W011",
            )
