"""Recurring schedules: dispatch due ticks, pause, resume, run now, and explain."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields, replace
from datetime import datetime
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.db import InterfaceError, OperationalError, connections

from .. import timing
from ..arguments import checked_text
from ..exceptions import MqliteError, ScheduleNotFound
from ..guard import call_guarded, get_logger
from ..handlers import prepare_task
from ..message import LAST_VISIBLE_AT
from ..recurring import all_schedules
from ..schedules import Schedule, properties_of
from ..store import sqlite as store
from ..timing import moment
from ..transactions import write_transaction
from ..types import MAX_INTEGER, ScheduleRecord, ScheduleStatus, WorkerRecord
from .async_twins import async_twin, has_async_twin
from .base import M, Verbs, get_model
from .explain import explain
from .explain_schedule import ScheduleContext, explain_schedule
from .workers import registered_workers

logger = get_logger("django_mqlite")

RETRY_AFTER_MS = 60_000
"""Milliseconds until a tick that could not be enqueued is tried again."""

MAX_ERROR = 500


class AnotherProcessWasFaster(MqliteError):
    """The record changed since it was read; the transaction is rolled back."""


# Dispatch: by the reapers of workers, by runreaper, and by drain()


def sync_schedules(
    using: str, schedules: Mapping[str, Schedule], *, complete: bool = True
) -> dict[str, int]:
    """Add and update the records of these schedules; return due_times().

    A new schedule, and one whose ticks have changed, starts with its next tick. If `complete`,
    the records of other schedules are deleted. Writes only if something has changed.
    """
    records = dict(store.schedules.SCHEDULE_RECORDS.all(connections[using]))
    removed = sorted(records.keys() - schedules.keys()) if complete else []
    outdated = [
        name for name, schedule in schedules.items() if not _is_current(records.get(name), schedule)
    ]
    if removed or outdated:
        with write_transaction(using) as (connection, now):
            for name in removed:
                store.schedules.DELETE_SCHEDULE.run(connection, name=name)
            for name in outdated:
                before, record = _read(connection, schedules[name], now=now)
                _store(connection, name, before, record, now=now)
        records = dict(store.schedules.SCHEDULE_RECORDS.all(connections[using]))
    return _due_times(schedules, records)


def due_times(using: str, schedules: Mapping[str, Schedule]) -> dict[str, int]:
    """Return the time at which each schedule is due, without those that have other ticks now."""
    records = dict(store.schedules.SCHEDULE_RECORDS.all(connections[using]))
    return _due_times(schedules, records)


def readable_records(using: str) -> list[tuple[Schedule, ScheduleRecord]]:
    """Return the started schedules with their records, sorted by name; [] if the code has errors.

    The project's modules are imported only if there are records. The system checks report errors.
    """
    records = dict(store.schedules.SCHEDULE_RECORDS.all(connections[using]))
    if not records:
        return []
    try:
        schedules = all_schedules()
    except (ImproperlyConfigured, MqliteError):
        return []
    return [
        (schedules[name], record)
        for name in sorted(schedules)
        if (record := _parse(records.get(name))) and _is_current(records[name], schedules[name])
    ]


def stored_definitions(using: str) -> dict[str, str]:
    """Return the definition of each schedule as it was stored by the process that started last."""
    records = dict(store.schedules.SCHEDULE_RECORDS.all(connections[using]))
    return {name: record.definition for name in records if (record := _parse(records[name]))}


def _due_times(
    schedules: Mapping[str, Schedule], records: Mapping[str, str | None]
) -> dict[str, int]:
    due = {}
    for name, schedule in schedules.items():
        record = _parse(records.get(name))
        if record is not None and record.definition == schedule.ticks.text:
            due[name] = schedule.ticks.after(record.position)
    return {name: at for name, at in due.items() if at is not None}


def _is_current(text: str | None, schedule: Schedule) -> bool:
    record = _parse(text)
    return record is not None and record.definition == schedule.ticks.text


def _read(connection: Any, schedule: Schedule, *, now: int) -> tuple[str | None, ScheduleRecord]:
    """Return the stored text and its record, which starts now if it is new or has other ticks.

    Requires the write lock. A record that another program has damaged is deleted.
    """
    text = store.schedules.SCHEDULE_RECORD.value(connection, name=schedule.name)
    record = _parse(text)
    definition = schedule.ticks.text
    if record is None:
        store.schedules.DELETE_SCHEDULE.run(connection, name=schedule.name)
        return None, ScheduleRecord(definition=definition, position=now)
    if record.definition != definition:
        record = replace(record, definition=definition, position=now, error="")
    return text, record


def dispatch_due(using: str, schedule: Schedule) -> int | None:
    """Enqueue the due ticks of a schedule; return the time at which it is due next, None for never.

    A tick's message and the schedule's new position are written in one transaction, so each tick is
    enqueued once, however many processes dispatch. Reads only if another process was faster.
    """
    try:
        return _dispatch(using, schedule)
    except AnotherProcessWasFaster:
        return timing.now_ms()
    except (InterfaceError, OperationalError):
        raise  # the database cannot be used; the worker retries
    except Exception as error:  # noqa: BLE001 - the project's code may raise anything
        _record_error(using, schedule, _error_text(error))
        return timing.now_ms() + RETRY_AFTER_MS


def _dispatch(using: str, schedule: Schedule) -> int | None:
    record = _parse(store.schedules.SCHEDULE_RECORD.value(connections[using], name=schedule.name))
    if record is None or record.definition != schedule.ticks.text:
        return None  # removed or changed by a process that was started later
    if record.paused:
        return schedule.ticks.after(max(record.position, timing.now_ms()))
    due = schedule.ticks.after(record.position)
    if due is None or due > timing.now_ms():
        return due
    with write_transaction(using) as (connection, now):
        before = store.schedules.SCHEDULE_RECORD.value(connection, name=schedule.name)
        record = _parse(before)
        if record is None or record.definition != schedule.ticks.text or record.paused:
            return now  # changed since it was read: read it again
        ticks, missed = schedule.to_enqueue(after=record.position, until=now)
        record = replace(record, position=max(record.position, now), error="")
        for tick in ticks:
            record = _enqueue_tick(connection, schedule, record, tick, now=now)
        _store(connection, schedule.name, before, record, now=now)
    if missed:
        logger.warning("schedule %s: missed ticks were not enqueued", schedule.name)
    return schedule.ticks.after(record.position)


def _enqueue_tick(
    connection: Any, schedule: Schedule, record: ScheduleRecord, tick: int, *, now: int
) -> ScheduleRecord:
    """Enqueue the message of a tick, unless it would overlap; return the new record."""
    if schedule.overlap == "skip" and _unfinished_state(connection, record) is not None:
        return replace(record, skipped_tick=tick)
    message = _enqueue(connection.alias, schedule, tick)
    return replace(record, last_id=message.pk, last_tick=tick, last_at=now)


def _enqueue(using: str, schedule: Schedule, tick: int) -> Any:
    properties = properties_of(schedule.name, tick)
    if schedule.task is not None:
        return prepare_task(schedule)(using, properties)
    options = {
        **schedule.options,
        "properties": {**(schedule.options.get("properties") or {}), **properties},
        # Without an id of its own, a queue with a dedup_window would take it for a duplicate.
        "message_id": f"{schedule.name}@{properties['scheduled_for']}",
    }
    messages = get_model("Message").objects.db_manager(using)
    return messages.enqueue(schedule.queue, schedule.data, **options)


def _unfinished_state(connection: Any, record: ScheduleRecord) -> str | None:
    """Return the state of the previous message if it is unfinished."""
    if not record.last_id:
        return None
    state: str | None = store.schedules.UNFINISHED_STATE.value(connection, id=record.last_id)
    return state


def _error_text(error: Exception) -> str:
    name = type(error).__name__
    return call_guarded(lambda: f"{name}: {error}"[:MAX_ERROR], lambda _error: name)


def _record_error(using: str, schedule: Schedule, error: str) -> None:
    with write_transaction(using) as (connection, now):
        before = store.schedules.SCHEDULE_RECORD.value(connection, name=schedule.name)
        record = _parse(before)
        if record is None or record.error == error:
            return
        _store(connection, schedule.name, before, replace(record, error=error), now=now)
    logger.error(
        "schedule %s: a tick cannot be enqueued and will be tried again: %s", schedule.name, error
    )


def _store(
    connection: Any, name: str, before: str | None, record: ScheduleRecord, *, now: int
) -> None:
    text = json.dumps(asdict(record))
    if not store.schedules.replace_record(connection, name, before=before, record=text, now=now):
        raise AnotherProcessWasFaster(f"The record of schedule {name!r} has changed.")


_FIELDS = {field.name: field.type for field in fields(ScheduleRecord)}


def _parse(text: str | None) -> ScheduleRecord | None:
    """Return the record; None if there is none, or another program has damaged it."""
    try:
        document = json.loads(text or "null")
        record = ScheduleRecord(**{k: v for k, v in document.items() if k in _FIELDS})
    except (AttributeError, TypeError, ValueError, RecursionError):
        return None
    is_valid = all(
        type(value := getattr(record, name)) is kind and (kind is str or 0 <= value <= MAX_INTEGER)
        for name, kind in _FIELDS.items()
    )
    return record if is_valid and record.position <= LAST_VISIBLE_AT else None


class ScheduleVerbs(Verbs[M]):
    """List, pause, resume and run the project's recurring schedules."""

    @has_async_twin
    def statuses(self) -> list[ScheduleStatus]:
        """Return every schedule of the project, sorted by name. Reads only.

        Raises HandlersNotImported, and ImproperlyConfigured for an invalid schedule.
        """
        schedules = all_schedules()
        records = dict(store.schedules.SCHEDULE_RECORDS.all(self.connection))
        workers = registered_workers(self.database) if schedules else []
        return [
            self._status(schedules[name], _parse(records.get(name)), workers)
            for name in sorted(schedules)
        ]

    astatuses = async_twin(statuses)

    @has_async_twin
    def status(self, name: str) -> ScheduleStatus:
        """Return one schedule. Raises ScheduleNotFound, which suggests a similar name."""
        schedule = self._named(name)
        text = store.schedules.SCHEDULE_RECORD.value(self.connection, name=schedule.name)
        return self._status(schedule, _parse(text), registered_workers(self.database))

    astatus = async_twin(status)

    @has_async_twin
    def pause(self, name: str) -> bool:
        """Stop the schedule until resume(); return False if it is already paused.

        Ticks during the pause are never enqueued. Raises ScheduleNotFound.
        """
        return self._set_paused(name, True)

    apause = async_twin(pause)

    @has_async_twin
    def resume(self, name: str) -> bool:
        """Continue with the next tick; return False if the schedule is not paused."""
        return self._set_paused(name, False)

    aresume = async_twin(resume)

    def _set_paused(self, name: str, paused: bool) -> bool:
        schedule = self._named(name)
        with write_transaction(self.database) as (connection, now):
            before, record = _read(connection, schedule, now=now)
            if record.paused == paused:
                return False
            position = record.position if paused else max(record.position, now)
            record = replace(record, paused=paused, position=position)
            _store(connection, name, before, record, now=now)
        return True

    @has_async_twin
    def run_now(self, name: str) -> Any:
        """Enqueue the schedule's message now, and return it; the next tick does not change.

        Returns None, and enqueues nothing, if the previous message is unfinished and the schedule
        has `overlap` "skip". Works even while the schedule is paused. Raises ScheduleNotFound, and
        the errors of enqueue().
        """
        schedule = self._named(name)
        with write_transaction(self.database) as (connection, now):
            before, record = _read(connection, schedule, now=now)
            if schedule.overlap == "skip" and _unfinished_state(connection, record) is not None:
                return None
            message = _enqueue(self.database, schedule, now)
            record = replace(record, last_id=message.pk, last_tick=now, last_at=now)
            _store(connection, name, before, record, now=now)
        return message

    arun_now = async_twin(run_now)

    def _named(self, name: str) -> Schedule:
        schedules = all_schedules()
        name = checked_text(name, "name")
        if name not in schedules:
            raise ScheduleNotFound(name, schedules)
        return schedules[name]

    def _status(
        self,
        schedule: Schedule,
        record: ScheduleRecord | None,
        workers: Sequence[WorkerRecord],
    ) -> ScheduleStatus:
        connection = self.connection
        context = ScheduleContext(
            now=timing.now_ms(),
            workers=tuple(workers),
            unfinished=None if record is None else _unfinished_state(connection, record),
        )
        explanation = explain_schedule(schedule, record, context)
        next_run = explanation.facts["next_run"]
        last = record.last_id if record else 0
        return ScheduleStatus(
            name=schedule.name,
            definition=schedule.ticks.text,
            target=schedule.target,
            paused=record.paused if record else False,
            next_run=None if next_run is None else datetime.fromisoformat(next_run),
            last_run=moment(record.last_at) if record else None,
            last_message=last or None,
            last_outcome=explain(connection, last) if last else None,
            explanation=explanation,
        )
