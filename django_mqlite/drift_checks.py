"""System checks that compare the settings and the code with the database."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any

from django.core.checks import CheckMessage, Error, Tags, Warning, register
from django.db import connections
from django.db.utils import OperationalError

from .checks import check_handlers, check_schedules, checked_alias, settings_are_valid, with_link
from .conf import get_settings
from .handlers import queues_of_kinds
from .recurring import all_schedules
from .store import sqlite as store
from .types import OrderingMode, QueueConfig
from .verbs.schedules import stored_definitions
from .verbs.workers import live_workers


@register("mqlite", Tags.database)
@with_link
def check_drift(databases: Sequence[str] | None = None, **_: Any) -> list[CheckMessage]:
    """Check for settings that `migrate` cannot apply, or has not applied yet."""
    alias = checked_alias() if settings_are_valid() else ""
    if alias not in (databases or ()) or connections[alias].vendor != "sqlite":
        return []
    connection = connections[alias]
    try:
        if "mqlite_queues" not in connection.introspection.table_names():
            return []
        return [*_check_queues(connection), *_check_schedules(alias)]
    except OperationalError:
        return []  # check_database reports the error


def _check_queues(connection: Any) -> Iterator[CheckMessage]:
    declared = get_settings().queues
    for name in sorted(declared.keys() | queues_of_kinds()):
        owner = store.topics.NAME_OWNER.value(connection, name=name)
        taken = owner == "a topic" or (owner == "a subscription" and name in declared)
        if taken:
            yield _taken(name, owner)
        elif name in declared:
            yield from _check_queue(connection, name, declared[name])
        elif owner is None:
            yield _missing(connection, name, "TASKS")


def _taken(name: str, owner: str) -> CheckMessage:
    hint = f"Remove it from MQLITE['QUEUES'], and call Queue.objects.configure({name!r}, …)."
    if owner == "a topic":
        hint = "Choose another name for the queue: queues and topics share one namespace."
    return Error(
        f"Queue {name!r} is declared in the settings, but {owner} has this name: `migrate` fails.",
        hint=hint,
        id="mqlite.E012",
    )


def _check_queue(connection: Any, name: str, config: QueueConfig) -> Iterator[CheckMessage]:
    stored = store.queues.queue_config(connection, name)
    if stored is None:
        yield _missing(connection, name, "MQLITE['QUEUES']")
    elif _cannot_change_order(connection, name, stored, config):
        yield Error(
            f"Queue {name!r} is {stored.ordering_mode} and has messages in that order, but "
            f"MQLITE['QUEUES'] declares {config.ordering_mode}: `migrate` fails.",
            hint=f"Declare {stored.ordering_mode} until the queue is empty. Workers handle its "
            f"messages, and `manage.py mqlite empty {name}` deletes them.",
            id="mqlite.E013",
        )
    elif differences := _differences(stored, config):
        yield Warning(
            f"Queue {name!r} in database {connection.alias!r} differs from MQLITE['QUEUES']: "
            f"{', '.join(differences)}.",
            hint="`manage.py migrate` applies the settings. If the queue was changed on purpose, "
            "change the settings.",
            id="mqlite.W016",
        )


def _missing(connection: Any, name: str, where: str) -> CheckMessage:
    return Warning(
        f"Queue {name!r} is in {where}, and not in database {connection.alias!r}.",
        hint="`manage.py migrate` creates it.",
        id="mqlite.W016",
    )


def _cannot_change_order(
    connection: Any, name: str, stored: QueueConfig, config: QueueConfig
) -> bool:
    strict = OrderingMode.STRICT_FIFO
    if (stored.ordering_mode == strict) == (config.ordering_mode == strict):
        return False
    row = store.queues.ORDERED_MESSAGES.one(connection, name=name)
    return bool(row and row[1])


def _differences(stored: QueueConfig, config: QueueConfig) -> list[str]:
    """Return a text for each option that differs, with the value of the database first."""
    before, after = _options(stored), _options(config)
    return [
        f"{name} is {before[name]} instead of {after[name]}"
        for name in before
        if before[name] != after[name]
    ]


def _options(config: QueueConfig) -> dict[str, str]:
    """Return the options as in the settings."""
    options = {
        field.name.removesuffix("_ms"): _text(field.name, getattr(config, field.name))
        for field in fields(config)
        if field.name not in ("kind", "rate_count", "rate_period_ms")
    }
    return {**options, "rate": str(config.rate)}


def _text(name: str, value: Any) -> str:
    if name.startswith("dlq_") and value <= 0:
        return "None" if value else "'inherit'"
    if name == "max_in_flight":
        return str(value or None)
    if name == "dead_letter_on_expire":
        return str(bool(value))
    return f"{value / 1000:g} s" if name.endswith("_ms") else str(value)


def _check_schedules(alias: str) -> Iterator[CheckMessage]:
    """Compare with the schedules of the running workers; the next worker to start stores its own.

    Without a running worker there is nothing to restart.
    """
    if check_handlers() or check_schedules():
        return
    if not any(worker.reaps for worker in live_workers(alias)):
        return
    current = {name: schedule.ticks.text for name, schedule in all_schedules().items()}
    if differences := _schedule_differences(stored_definitions(alias), current):
        yield Warning(
            f"The running workers have other recurring schedules than this code: "
            f"{', '.join(differences)}.",
            hint="Restart the workers and `runreaper`.",
            id="mqlite.W017",
        )


def _schedule_differences(stored: Mapping[str, str], current: Mapping[str, str]) -> list[str]:
    texts = []
    for name in sorted(stored.keys() | current.keys()):
        if name not in stored:
            texts.append(f"{name!r} is new")
        elif name not in current:
            texts.append(f"{name!r} was removed")
        elif stored[name] != current[name]:
            texts.append(f"{name!r} is {stored[name]} instead of {current[name]}")
    return texts
