"""System checks of an entry of TASKS with this backend."""

from collections.abc import Iterator
from typing import Any

from django.apps import apps
from django.core.checks import CheckMessage, Error, Warning
from django.core.exceptions import ImproperlyConfigured

from ..checks import linked_hints
from ..conf import get_settings
from ..names import checked_name, suggestion_sentence

OPTIONS = ("RESULT_TTL",)


def check_backend(backend: Any) -> list[CheckMessage]:
    """Return the errors in the backend's entry of TASKS."""
    return linked_hints(
        [
            *check_installed(),
            *_check_options(backend),
            *_check_queue_names(backend),
            *_check_windows(backend),
        ]
    )


def check_installed() -> Iterator[CheckMessage]:
    """Check that the app is installed: the backend alone has no tables."""
    if not apps.is_installed("django_mqlite"):
        yield Error(
            "TASKS names the backend of django_mqlite, which is not in INSTALLED_APPS.",
            hint="Add 'django_mqlite' to INSTALLED_APPS and run `manage.py migrate`.",
            id="mqlite.E008",
        )


def _check_options(backend: Any) -> Iterator[CheckMessage]:
    for name in backend.options:
        if name not in OPTIONS:
            hint = suggestion_sentence(name, OPTIONS).strip() or f"Known: {', '.join(OPTIONS)}."
            yield Error(
                f"TASKS[{backend.alias!r}]['OPTIONS'] has no option {name!r}.",
                hint=hint,
                id="mqlite.E005",
            )
    try:
        _ = backend.result_ttl_ms
    except ImproperlyConfigured as error:
        yield Error(f"{error}.", hint="Set a timedelta or seconds.", id="mqlite.E005")


def _check_queue_names(backend: Any) -> Iterator[CheckMessage]:
    for name in sorted(backend.queues, key=str):
        try:
            checked_name(name)
        except ValueError as error:
            yield Error(f"TASKS[{backend.alias!r}]['QUEUES']: {error}.", id="mqlite.E006")


def _check_windows(backend: Any) -> Iterator[CheckMessage]:
    try:
        declared = get_settings().queues
        result_ttl_ms = backend.result_ttl_ms
    except ImproperlyConfigured:
        return  # reported by another check
    for name in sorted(backend.served_queues & declared.keys()):
        if declared[name].dedup_window_ms > result_ttl_ms:
            yield Warning(
                f"TASKS[{backend.alias!r}]['QUEUES']: the dedup_window of queue {name!r} is longer "
                "than results are kept, so a repeated unique call may find no result.",
                hint="Make RESULT_TTL at least as long as the queue's dedup_window.",
                id="mqlite.W012",
            )
