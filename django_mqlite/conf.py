"""The MQLITE setting, read by one function, and the options for Django's own SQLite engine."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from json import JSONEncoder
from typing import Any

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed
from django.db import connections
from django.utils.module_loading import import_string

from .exceptions import MqliteError, Restorable
from .guard import safe_repr
from .limits import read_rate
from .names import check_options, checked_name, suggestion, unknown_options
from .schedules import Schedule, read_schedule
from .timing import milliseconds
from .types import OrderingMode, QueueConfig


class InvalidSettings(Restorable, ImproperlyConfigured):
    """The setting has mistakes. `mistakes` has a sentence for each of them."""

    def __init__(self, mistakes: Iterable[str]) -> None:
        self.mistakes = tuple(mistakes)
        text = "\n- ".join(("The settings have several mistakes:", *self.mistakes))
        super().__init__(self.mistakes[0] if len(self.mistakes) == 1 else text)


class Mistakes:
    """The mistakes of a setting, collected so that all of them are reported at once."""

    def __init__(self, texts: Iterable[str] = ()) -> None:
        self._texts = list(texts)

    @contextmanager
    def collected(self) -> Iterator[None]:
        """Collect the mistakes that the block raises."""
        try:
            yield
        except InvalidSettings as error:
            self._texts += error.mistakes
        except ImproperlyConfigured as error:
            self._texts.append(str(error))

    def raise_any(self) -> None:
        """Raise InvalidSettings if there are mistakes."""
        if self._texts:
            raise InvalidSettings(self._texts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The validated MQLITE setting. `database` None means the routers' choice; -1 means no limit.

    `handlers` None means the `handlers` module of each installed app. `tokens` are the root tokens
    of the HTTP broker, and `cors` is the origin that it allows, None for its default.
    """

    queues: Mapping[str, QueueConfig] = field(default_factory=dict)
    max_body_bytes: int = 1024 * 1024
    dlq_max_age_ms: int = -1
    dlq_max_count: int = -1
    dlq_max_bytes: int = -1
    database: str | None = None
    handlers: tuple[str, ...] | None = None
    schedules: Mapping[str, Schedule] = field(default_factory=dict)
    encoder: type[JSONEncoder] | None = None
    admin_body: Callable[..., Any] | None = None
    tokens: tuple[str, ...] = ()
    cors: str | None = None


def get_settings() -> Settings:
    """Return the MQLITE setting; raise InvalidSettings, with all mistakes, if it is not valid."""
    return _read()


@cache
def _read() -> Settings:
    raw = getattr(settings, "MQLITE", {})
    _check_names(raw, raw, "MQLITE")
    readers = {
        "QUEUES": ("queues", _queues),
        **SETTING_OPTIONS,
        "SCHEDULES": ("schedules", _schedules),
    }
    mistakes = Mistakes(unknown_options(raw, readers, "MQLITE"))
    values: dict[str, Any] = {}
    for name, (attribute, read) in readers.items():
        if name in raw:
            with mistakes.collected():
                values[attribute] = read(raw[name], f"MQLITE[{name!r}]")
    mistakes.raise_any()
    return Settings(**values)


def _queues(raw: Any, where: str) -> dict[str, QueueConfig]:
    _check_names(raw, raw, where)
    queues, mistakes = {}, Mistakes()
    for name, options in raw.items():
        with mistakes.collected():
            queues[_queue_name(name, where)] = queue_config(options, f"{where}[{name!r}]")
    mistakes.raise_any()
    return queues


def _queue_name(name: Any, where: str) -> str:
    try:
        return checked_name(name)
    except ValueError as error:
        raise ImproperlyConfigured(f"{where}: {error}") from error


def _schedules(raw: Any, where: str) -> dict[str, Schedule]:
    _check_names(raw, raw, where)
    schedules, mistakes = {}, Mistakes()
    for name, options in raw.items():
        with mistakes.collected():
            schedules[name] = configured_schedule(name, options, f"{where}[{name!r}]")
    mistakes.raise_any()
    return schedules


def configured_schedule(name: Any, options: Any, where: str) -> Schedule:
    """Return the schedule; raise ImproperlyConfigured, naming `where`, for an invalid option."""
    try:
        return read_schedule(name, options, where, timezone=settings.TIME_ZONE)
    except (TypeError, ValueError, MqliteError) as error:
        raise ImproperlyConfigured(str(error)) from error


def _alias(value: Any, where: str) -> str | None:
    if value is not None and not (isinstance(value, str) and value):
        raise ImproperlyConfigured(f"{where} must be an alias of DATABASES, not {safe_repr(value)}")
    if value is not None and value not in connections.settings:
        raise ImproperlyConfigured(
            f"{where} is {value!r}, which is not an alias of DATABASES"
            f"{suggestion(value, connections.settings)}"
        )
    return value


def _modules(value: Any, where: str) -> tuple[str, ...] | None:
    if value is None:
        return None
    if not isinstance(value, list | tuple) or not all(map(_is_module_path, value)):
        raise ImproperlyConfigured(
            f"{where} must be a list of modules such as 'shop.handlers', or None for the "
            f"`handlers` module of each installed app, not {safe_repr(value)}"
        )
    return tuple(value)


def _is_module_path(value: Any) -> bool:
    return isinstance(value, str) and all(part.isidentifier() for part in value.split("."))


def _encoder(value: Any, where: str) -> type[JSONEncoder] | None:
    if value is None:
        return None
    encoder = _imported(value, where)
    if not (isinstance(encoder, type) and issubclass(encoder, JSONEncoder)):
        raise ImproperlyConfigured(
            f"{where} must be the path of a subclass of json.JSONEncoder, such as "
            f"'django.core.serializers.json.DjangoJSONEncoder', not {safe_repr(value)}"
        )
    return encoder


def _callable(value: Any, where: str) -> Callable[..., Any] | None:
    function = None if value is None else _imported(value, where)
    if value is not None and not callable(function):
        raise ImproperlyConfigured(
            f"{where} must be the path of a callable, such as 'shop.masking.mask', not "
            f"{safe_repr(value)}"
        )
    return function


def _imported(path: Any, where: str) -> Any:
    if not isinstance(path, str):
        return path
    try:
        return import_string(path)
    except Exception as error:  # an import can raise anything
        raise ImproperlyConfigured(f"{where} cannot be imported: {error}") from error


def queue_config(options: Mapping[str, Any], where: str, *, kind: str = "queue") -> QueueConfig:
    """Return the configuration of a queue; durations in `options` are seconds or timedeltas."""
    return QueueConfig(kind=kind, **queue_columns(options, where))


def queue_columns(options: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return the columns that `options` set; raise ImproperlyConfigured for an invalid option."""
    _check_names(options, options, where)
    mistakes = Mistakes(unknown_options(options, QUEUE_OPTIONS, where))
    columns: dict[str, Any] = {}
    for name in options:
        if name not in QUEUE_OPTIONS:
            continue
        with mistakes.collected():
            columns |= QUEUE_OPTIONS[name](options[name], f"{where}[{name!r}]")
    mistakes.raise_any()
    return columns


def _check_names(raw: Any, known: Iterable[str], where: str) -> None:
    try:
        check_options(raw, known, where)
    except (TypeError, ValueError) as error:
        raise ImproperlyConfigured(str(error)) from error


def _duration(minimum: int) -> Callable[[Any, str], int]:
    def read(value: Any, where: str) -> int:
        try:
            return milliseconds(value, where, minimum=minimum)
        except (TypeError, ValueError) as error:
            raise ImproperlyConfigured(str(error)) from error

    return read


def _count(value: Any, where: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < 2**63:
        raise ImproperlyConfigured(
            f"{where} must be an integer of at least 1, not {safe_repr(value)}"
        )
    return value


def _bound(read: Callable[[Any, str], int]) -> Callable[[Any, str], int]:
    """Return a reader that accepts None for no limit, and "inherit" for the setting's.

    The row stores -1 and 0.
    """

    def read_bound(value: Any, where: str) -> int:
        if value is None:
            return -1
        try:
            return 0 if value == "inherit" else read(value, where)
        except ImproperlyConfigured as error:
            raise ImproperlyConfigured(f"{error}. None is no limit.") from error

    return read_bound


def _flag(value: Any, where: str) -> bool:
    if not isinstance(value, bool):
        raise ImproperlyConfigured(f"{where} must be True or False, not {safe_repr(value)}")
    return value


def _ordering_mode(value: Any, where: str) -> str:
    modes = [mode.value for mode in OrderingMode]
    if value not in modes:
        raise ImproperlyConfigured(
            f"{where} must be one of {', '.join(modes)}, not {safe_repr(value)}"
        )
    return str(value)


def _rate(value: Any, where: str) -> dict[str, int]:
    if value is None:
        return {"rate_count": 0, "rate_period_ms": 0}
    try:
        rate = read_rate(value, where)
    except (TypeError, ValueError) as error:
        raise ImproperlyConfigured(str(error)) from error
    return {"rate_count": rate.count, "rate_period_ms": rate.period_ms}


def _max_in_flight(value: Any, where: str) -> int:
    try:
        return 0 if value is None else _count(value, where)
    except ImproperlyConfigured as error:
        raise ImproperlyConfigured(
            f"{error}. None is no limit, and Queue.pause() stops the deliveries."
        ) from error


def _column(column: str, read: Callable[[Any, str], Any]) -> Callable[[Any, str], dict[str, Any]]:
    """Return a reader for an option that sets one column."""
    return lambda value, where: {column: read(value, where)}


QUEUE_OPTIONS: dict[str, Callable[[Any, str], dict[str, Any]]] = {
    "ordering_mode": _column("ordering_mode", _ordering_mode),
    "lock_duration": _column("lock_duration_ms", _duration(1)),
    "max_delivery_count": _column("max_delivery_count", _count),
    "backoff_base": _column("backoff_base_ms", _duration(0)),
    "backoff_max": _column("backoff_max_ms", _duration(0)),
    "default_ttl": _column("default_ttl_ms", _duration(0)),
    "dead_letter_on_expire": _column("dead_letter_on_expire", _flag),
    "dedup_window": _column("dedup_window_ms", _duration(0)),
    "retain_completed": _column("retain_completed_ms", _duration(0)),
    "dlq_max_age": _column("dlq_max_age_ms", _bound(_duration(1))),
    "dlq_max_count": _column("dlq_max_count", _bound(_count)),
    "dlq_max_bytes": _column("dlq_max_bytes", _bound(_count)),
    "max_in_flight": _column("max_in_flight", _max_in_flight),
    "rate": _rate,
}
"""The readers of the options; each returns the columns that its option sets."""


def _tokens(value: Any, where: str) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not all(
        isinstance(token, str) and token.strip() for token in value
    ):
        raise ImproperlyConfigured(f"{where} must be a list of texts that are not empty.")
    return tuple(value)


def _origin(value: Any, where: str) -> str | None:
    if value is not None and not (isinstance(value, str) and value.strip()):
        raise ImproperlyConfigured(
            f"{where} must be an origin such as 'https://example.com', '*', 'off' or None, not "
            f"{safe_repr(value)}"
        )
    return value


SETTING_OPTIONS: dict[str, tuple[str, Callable[[Any, str], Any]]] = {
    "ADMIN_BODY": ("admin_body", _callable),
    "CORS": ("cors", _origin),
    "TOKENS": ("tokens", _tokens),
    "DATABASE": ("database", _alias),
    "ENCODER": ("encoder", _encoder),
    "HANDLERS": ("handlers", _modules),
    "MAX_BODY_BYTES": ("max_body_bytes", _count),
    "DLQ_MAX_AGE": ("dlq_max_age_ms", _bound(_duration(1))),
    "DLQ_MAX_COUNT": ("dlq_max_count", _bound(_count)),
    "DLQ_MAX_BYTES": ("dlq_max_bytes", _bound(_count)),
}


def sqlite_options(*, timeout: float = 5, synchronous: str = "FULL") -> dict[str, Any]:
    """Return OPTIONS for `django.db.backends.sqlite3` that make the queue durable and concurrent.

    WAL lets readers and a writer work at the same time. IMMEDIATE transactions wait for the write
    lock, up to `timeout` seconds, instead of failing. With `synchronous="FULL"` a committed
    transaction survives a power failure; "NORMAL" is faster and can lose the last commits, but
    never damages the file.
    """
    if synchronous not in ("FULL", "NORMAL", "EXTRA"):
        raise ImproperlyConfigured(
            f"synchronous must be FULL, NORMAL or EXTRA, not {synchronous!r}"
        )
    return {
        "transaction_mode": "IMMEDIATE",
        "timeout": timeout,
        "init_command": (
            f"PRAGMA journal_mode=WAL; PRAGMA synchronous={synchronous}; "
            "PRAGMA journal_size_limit=67108864"
        ),
    }


def _clear_cache(*, setting: str, **_: Any) -> None:
    if setting in ("DATABASES", "MQLITE", "TIME_ZONE"):
        _read.cache_clear()


setting_changed.connect(_clear_cache, dispatch_uid="django_mqlite.conf")
