"""OPTIONS and QUEUES of a tasks backend, read and checked."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from django.apps import apps
from django.core.checks import CheckMessage, Error, Warning
from django.core.exceptions import ImproperlyConfigured

from ..check_links import linked_hints
from ..conf import get_settings
from ..durations import milliseconds
from ..names import checked_name, did_you_mean

DEFAULT_RESULT_TTL_MS = 7 * 24 * 3_600_000
OPTIONS = ("RESULT_TTL",)


def result_ttl_ms(alias: str, options: Mapping[str, Any]) -> int:
    """RESULT_TTL in milliseconds; 0 keeps no results. ImproperlyConfigured if it is neither."""
    if "RESULT_TTL" not in options:
        return DEFAULT_RESULT_TTL_MS
    try:
        return milliseconds(options["RESULT_TTL"], f"TASKS[{alias!r}]['OPTIONS']['RESULT_TTL']")
    except (TypeError, ValueError) as error:
        raise ImproperlyConfigured(str(error)) from error


def served_queues(queues: Iterable[str]) -> set[str]:
    """The queues that tasks of a backend may come in. An empty QUEUES allows each declared one."""
    return set(queues) or set(get_settings().queues)


def check_backend(backend: Any) -> list[CheckMessage]:
    """What is wrong with the entry of this backend in TASKS."""
    return linked_hints([*check_installed(), *_check_options(backend), *_check_queues(backend)])


def check_installed() -> Iterator[CheckMessage]:
    """Check that the app is installed: the backend alone has no tables."""
    if not apps.is_installed("django_mqlite"):
        yield Error(
            "TASKS names the backend of django_mqlite, which is not in INSTALLED_APPS.",
            hint="Add 'django_mqlite' to INSTALLED_APPS and run `manage.py migrate`.",
            id="mqlite.E008",
        )


def _check_options(backend: Any) -> Iterator[CheckMessage]:
    where = f"TASKS[{backend.alias!r}]['OPTIONS']"
    for name in backend.options:
        if name not in OPTIONS:
            hint = did_you_mean(name, OPTIONS).strip() or f"Known: {', '.join(OPTIONS)}."
            yield Error(f"{where} has no option {name!r}.", hint=hint, id="mqlite.E005")
    try:
        result_ttl_ms(backend.alias, backend.options)
    except ImproperlyConfigured as error:
        yield Error(f"{error}.", hint="Give a timedelta or seconds.", id="mqlite.E005")


def _check_queues(backend: Any) -> Iterator[CheckMessage]:
    where = f"TASKS[{backend.alias!r}]['QUEUES']"
    for name in sorted(backend.queues, key=str):
        try:
            checked_name(name)
        except ValueError as error:
            yield Error(f"{where}: {error}.", id="mqlite.E006")
    yield from _check_windows(backend, where)


def _check_windows(backend: Any, where: str) -> Iterator[CheckMessage]:
    try:
        declared = get_settings().queues
        ttl = result_ttl_ms(backend.alias, backend.options)
    except ImproperlyConfigured:
        return  # told by another check
    for name in sorted(served_queues(backend.queues) & declared.keys()):
        if declared[name].dedup_window_ms > ttl:
            yield Warning(
                f"{where}: queue {name!r} tells repeats for longer than a result is kept: the "
                "second enqueue of a unique task may find no result to give back.",
                hint="Make RESULT_TTL at least as long as the queue's dedup_window.",
                id="mqlite.W012",
            )
