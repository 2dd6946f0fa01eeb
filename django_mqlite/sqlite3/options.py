"""Validation and defaults of the engine's OPTIONS."""

from collections.abc import Mapping
from math import isfinite
from typing import Any

from django.core.exceptions import ImproperlyConfigured

from ..names import suggestion

DEFAULTS: Mapping[str, Any] = {
    "timeout": 5.0,
    "journal_mode": "WAL",
    "synchronous": "FULL",
    "journal_size_limit": 64 * 1024 * 1024,
}
PASSED_THROUGH = (
    "cached_statements",
    "check_same_thread",
    "detect_types",
    "init_command",
    "transaction_mode",
)
"""Options that Django and the driver validate themselves."""

TRANSACTION_MODE = "IMMEDIATE"
"""The default `transaction_mode`."""

CHOICES: Mapping[str, tuple[str, ...]] = {
    "journal_mode": ("WAL", "DELETE", "TRUNCATE", "PERSIST", "MEMORY", "OFF"),
    "synchronous": ("OFF", "NORMAL", "FULL", "EXTRA"),
}


def with_defaults(options: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return `options` with defaults; raise ImproperlyConfigured for an invalid option."""
    known = {*DEFAULTS, *PASSED_THROUGH}
    for name in options:
        if name not in known:
            raise ImproperlyConfigured(f"{where} has no option {name!r}{suggestion(name, known)}")
    merged = {**DEFAULTS, **options}
    for name, choices in CHOICES.items():
        merged[name] = _choice(merged[name], choices, f"{where}[{name!r}]")
    _check_timeout(merged["timeout"], f"{where}['timeout']")
    _check_limit(merged["journal_size_limit"], f"{where}['journal_size_limit']")
    return merged


def _choice(value: Any, choices: tuple[str, ...], where: str) -> str | None:
    """Return the choice in upper case; None means SQLite's default."""
    if value is None:
        return None
    if not isinstance(value, str) or value.upper() not in choices:
        raise ImproperlyConfigured(f"{where} is None or one of {', '.join(choices)}, not {value!r}")
    return value.upper()


def _check_timeout(value: Any, where: str) -> None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not isfinite(value) or not 0 <= value <= 24 * 3600:
        raise ImproperlyConfigured(f"{where} is 0 to 86400 seconds, not {value!r}")


def _check_limit(value: Any, where: str) -> None:
    is_number = isinstance(value, int) and not isinstance(value, bool)
    if value is not None and (not is_number or not -1 <= value < 2**63):
        raise ImproperlyConfigured(f"{where} is a number of bytes, -1 or None, not {value!r}")
