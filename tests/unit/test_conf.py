"""The MQLITE setting."""

import pickle
import sys
from datetime import timedelta
from json import JSONEncoder

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.core.serializers.json import DjangoJSONEncoder
from django.test import override_settings

from django_mqlite.conf import (
    QUEUE_OPTIONS,
    configured_schedule,
    get_settings,
    queue_config,
    sqlite_options,
)
from django_mqlite.types import QueueConfig

NAN = float("nan")


def settings_of(value):
    with override_settings(MQLITE=value):
        return get_settings()


def test_settings_have_defaults():
    settings = settings_of({})

    assert (settings.queues, settings.max_body_bytes, settings.database) == ({}, 1024 * 1024, None)


def test_settings_are_read_with_durations_in_milliseconds():
    settings = settings_of(
        {
            "QUEUES": {
                "emails": {
                    "ordering_mode": "group_fifo",
                    "lock_duration": 60,
                    "max_delivery_count": 5,
                    "backoff_base": 0,
                    "backoff_max": timedelta(minutes=1),
                    "default_ttl": 0.5,
                    "retain_completed": timedelta(days=1),
                },
                "plain": {},
            },
            "MAX_BODY_BYTES": 10,
            "DATABASE": "default",
        }
    )

    assert settings.queues["emails"] == QueueConfig(
        ordering_mode="group_fifo",
        lock_duration_ms=60_000,
        max_delivery_count=5,
        backoff_base_ms=0,
        backoff_max_ms=60_000,
        default_ttl_ms=500,
        retain_completed_ms=86_400_000,
    )
    assert settings.queues["plain"] == QueueConfig()
    assert (settings.max_body_bytes, settings.database) == (10, "default")


@pytest.mark.parametrize(
    ("value", "encoder"),
    [
        (None, None),
        ("django.core.serializers.json.DjangoJSONEncoder", DjangoJSONEncoder),
        (DjangoJSONEncoder, DjangoJSONEncoder),
    ],
)
def test_encoder_is_imported_by_its_path(value, encoder):
    assert settings_of({"ENCODER": value}).encoder is encoder


@pytest.mark.parametrize(
    ("value", "modules"),
    [(["shop.handlers"], ("shop.handlers",)), ((), ()), ([], ()), (None, None)],
    ids=str,
)
def test_handler_modules_are_listed_or_none(value, modules):
    assert settings_of({"HANDLERS": value}).handlers == modules
    assert settings_of({}).handlers is None


def test_settings_are_read_again_after_a_change():
    with override_settings(MQLITE={"MAX_BODY_BYTES": 10}):
        first = get_settings()
        with override_settings(MQLITE={"MAX_BODY_BYTES": 20}):
            assert get_settings().max_body_bytes == 20
        with override_settings(DEBUG=True):
            assert get_settings().max_body_bytes == 10
        assert first.max_body_bytes == 10


def test_invalid_setting_is_refused_at_every_read():
    with override_settings(MQLITE={"NONSENSE": 1}):
        for _ in range(2):
            with pytest.raises(ImproperlyConfigured):
                get_settings()


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"QUEUE": {}}, r"MQLITE has no option 'QUEUE'; did you mean 'QUEUES'\?"),
        ({"queues": {}}, r"MQLITE has no option 'queues'; did you mean 'QUEUES'\?"),
        ({"dlq_max_age": 5}, r"did you mean 'DLQ_MAX_AGE'\?"),
        ({"QUEUES": {"emails": {"LOCK_DURATION": 5}}}, r"did you mean 'lock_duration'\?"),
        ({"DATABASE": "Default"}, r"'Default', which is not an alias .* did you mean 'default'\?"),
        ({"DATABASE": "xyz"}, r"MQLITE\['DATABASE'\] is 'xyz', .*; known: default"),
        ({"MAX_BODY_SIZE": 1}, r"did you mean 'MAX_BODY_BYTES'\?"),
        ({"XYZ": 1}, r"no option 'XYZ'; known: ADMIN_BODY, CORS, .*MAX_BODY_BYTES, QUEUES"),
        (
            {"QUEUES": {"emails": {"lock_durations": 1}}},
            r"\['QUEUES'\]\['emails'\] has no option 'lock_durations'.* mean 'lock_duration'\?",
        ),
        ({"QUEUES": {"emails": {"max_delivery": 1}}}, r"did you mean 'max_delivery_count'\?"),
        ({"QUEUES": {"emails": {5: 1}}}, r"has no option 5"),
    ],
)
def test_unknown_option_is_refused_with_a_suggestion(value, message):
    with pytest.raises(ImproperlyConfigured, match=message):
        settings_of(value)


def test_all_mistakes_are_reported_at_once():
    setting = {
        "QUEUE": {},
        "QUEUES": {"a b": {}, "emails": {"lock_duration": 0, "max": 1}, "jobs": 5},
        "SCHEDULES": {"s": {"every": 0}, "t": {"cron": "* * *", "queue": "jobs"}},
        "MAX_BODY_BYTES": 0,
    }

    with pytest.raises(ImproperlyConfigured) as raised:
        settings_of(setting)

    places = [
        "MQLITE has no option 'QUEUE'",
        "MQLITE['QUEUES']: Invalid queue name 'a b'",
        "MQLITE['QUEUES']['emails'] has no option 'max'",
        "MQLITE['QUEUES']['emails']['lock_duration'] must be",
        "MQLITE['QUEUES']['jobs'] must be a dict",
        "MQLITE['MAX_BODY_BYTES'] must be",
        "MQLITE['SCHEDULES']['s']",
        "MQLITE['SCHEDULES']['t']['cron'] is not a valid cron expression",
    ]
    mistakes = raised.value.mistakes
    assert len(mistakes) == len(places)
    for place in places:
        assert [text for text in mistakes if text.startswith(place)] != []
        assert f"\n- {place}" in str(raised.value)
    assert pickle.loads(pickle.dumps(raised.value)).mistakes == mistakes


@pytest.mark.parametrize("name", ["DLQ_MAX_AGE", "DLQ_MAX_COUNT", "DLQ_MAX_BYTES"])
def test_error_of_a_bound_says_that_none_is_no_limit(name):
    with pytest.raises(ImproperlyConfigured, match=r"None is no limit\.$"):
        settings_of({name: 0})
    with pytest.raises(ImproperlyConfigured, match=r"None is no limit\.$"):
        queue_config({name.lower(): 0}, "queue 'q'")


NO_DICTS = (None, ["emails"], "emails", 5)
INVALID = {
    "MQLITE must be a dict": [None, [], "QUEUES", 5],
    r"MQLITE\['QUEUES'\]": [{"QUEUES": value} for value in NO_DICTS],
    r"MQLITE\['QUEUES'\]\['emails'\]": [{"QUEUES": {"emails": value}} for value in NO_DICTS],
    r"MQLITE\['MAX_BODY_BYTES'\]": [
        {"MAX_BODY_BYTES": value} for value in (0, -1, 1.5, True, "10", None, NAN, 2**63)
    ],
    r"MQLITE\['DATABASE'\]": [{"DATABASE": value} for value in (5, True, "", ["default"])],
    "must be a list of modules": [
        {"HANDLERS": value} for value in ("shop.handlers", [7], [""], ["shop/handlers.py"], False)
    ],
    r"MQLITE\['ENCODER'\] must be the path of a subclass of json.JSONEncoder": [
        {"ENCODER": value} for value in ("json.dumps", "decimal.Decimal", JSONEncoder(), 5)
    ],
    r"MQLITE\['ADMIN_BODY'\] must be the path of a callable": [
        {"ADMIN_BODY": value} for value in (5, "django_mqlite.types.MAX_INTEGER")
    ],
    r"MQLITE\['ADMIN_BODY'\] cannot be imported": [{"ADMIN_BODY": "no.such.module"}],
    r"MQLITE\['ENCODER'\] cannot be imported": [
        {"ENCODER": value} for value in ("", "JSONEncoder", "json.Missing", "no.such.module")
    ],
    **{
        rf"MQLITE\['{name}'\]": [{name: value} for value in (0, -1, NAN, "5", True)]
        for name in ("DLQ_MAX_AGE", "DLQ_MAX_COUNT", "DLQ_MAX_BYTES")
    },
}


@pytest.mark.parametrize("text", INVALID)
def test_invalid_setting_is_refused_by_name(text):
    for setting in INVALID[text]:
        with pytest.raises(ImproperlyConfigured, match=text):
            settings_of(setting)


LENGTHS = [
    "lock_duration",
    "backoff_base",
    "backoff_max",
    "default_ttl",
    "dedup_window",
    "retain_completed",
    "dlq_max_age",
]
COUNTS = ["max_delivery_count", "dlq_max_count", "dlq_max_bytes"]
WRONG = [
    *((name, value) for name in LENGTHS for value in (-1, NAN, "60", True, 10**12)),
    *((name, None) for name in LENGTHS if name != "dlq_max_age"),
    *((name, 0) for name in ("lock_duration", "dlq_max_age")),
    *((name, value) for name in COUNTS for value in (0, -1, 1.5, True, "5", 2**63)),
    ("max_delivery_count", None),
    *(("dead_letter_on_expire", value) for value in (0, 1, None, "yes")),
    *(("max_in_flight", value) for value in (0, -1, 1.5, True, "5", 2**63)),
    *(("rate", value) for value in ("", "100", "0/s", "1/year", 60, (1,), (0, 1), (1, 0))),
    *(("ordering_mode", value) for value in ("fifo", "", None, 5, [], "STANDARD")),
]


@pytest.mark.parametrize(("option", "value"), WRONG)
def test_invalid_queue_option_is_refused_by_name(option, value):
    with pytest.raises(ImproperlyConfigured, match=rf"queue 'q'\['{option}'\]"):
        queue_config({option: value}, "queue 'q'")


def test_dead_letter_bound_of_none_is_no_bound():
    own = queue_config({"dlq_max_count": None, "dlq_max_age": 60}, "queue 'q'")

    assert (own.dlq_max_count, own.dlq_max_age_ms, own.dlq_max_bytes) == (-1, 60_000, 0)
    assert settings_of({"DLQ_MAX_COUNT": 5}).dlq_max_count == 5
    assert settings_of({"DLQ_MAX_COUNT": None}) == settings_of({})


def test_every_queue_option_has_invalid_values_in_this_file():
    assert set(QUEUE_OPTIONS) == {option for option, _ in WRONG}


def test_missing_cronsim_is_not_an_invalid_expression(monkeypatch):
    monkeypatch.setitem(sys.modules, "cronsim", None)

    with pytest.raises(ImportError, match="cronsim"):
        configured_schedule("s", {"cron": "0 3 * * *", "queue": "jobs"}, "SCHEDULES['s']")


@pytest.mark.parametrize(
    ("arguments", "timeout", "synchronous"),
    [({}, 5, "FULL"), ({"timeout": 1.5, "synchronous": "NORMAL"}, 1.5, "NORMAL")],
    ids=["default", "given"],
)
def test_sqlite_options_are_immediate_and_wal(arguments, timeout, synchronous):
    options = sqlite_options(**arguments)

    assert options["transaction_mode"] == "IMMEDIATE"
    assert "journal_mode=WAL" in options["init_command"]
    assert f"synchronous={synchronous}" in options["init_command"]
    assert options["timeout"] == timeout


@pytest.mark.parametrize("value", ["OFF", "full", "FULL; DROP TABLE x", None, 2])
def test_unsafe_synchronous_is_refused(value):
    with pytest.raises(ImproperlyConfigured, match="synchronous must be FULL, NORMAL or EXTRA"):
        sqlite_options(synchronous=value)
