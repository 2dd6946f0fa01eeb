"""The MQLITE setting."""

from datetime import timedelta

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.test import override_settings

from django_mqlite.conf import QUEUE_OPTIONS, get_settings, queue_config, sqlite_options
from django_mqlite.types import QueueConfig

NAN = float("nan")


def settings_of(value):
    with override_settings(MQLITE=value):
        return get_settings()


def test_without_the_setting_everything_has_its_default():
    settings = settings_of({})

    assert (settings.queues, settings.max_body_bytes, settings.database) == ({}, 1024 * 1024, None)


def test_every_option_arrives_in_milliseconds():
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
            "DATABASE": "queue",
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
    assert (settings.max_body_bytes, settings.database) == (10, "queue")


@pytest.mark.parametrize(
    ("value", "modules"),
    [(["shop.handlers"], ("shop.handlers",)), ((), ()), ([], ()), (None, None)],
    ids=str,
)
def test_the_modules_with_handlers_are_named_or_none_or_every_apps(value, modules):
    assert settings_of({"HANDLERS": value}).handlers == modules
    assert settings_of({}).handlers is None


@pytest.mark.parametrize("value", ["shop.handlers", [7], [""], ["shop/handlers.py"], False])
def test_modules_with_handlers_are_a_list_of_paths(value):
    with pytest.raises(ImproperlyConfigured, match="must be a list of modules"):
        settings_of({"HANDLERS": value})


def test_a_changed_setting_is_read_again_and_an_unchanged_one_is_not():
    with override_settings(MQLITE={"MAX_BODY_BYTES": 10}):
        first = get_settings()
        with override_settings(MQLITE={"MAX_BODY_BYTES": 20}):
            assert get_settings().max_body_bytes == 20
        with override_settings(DEBUG=True):
            assert get_settings().max_body_bytes == 10
        assert first.max_body_bytes == 10


def test_a_wrong_setting_is_an_error_each_time_it_is_read():
    with override_settings(MQLITE={"NONSENSE": 1}):
        for _ in range(2):
            with pytest.raises(ImproperlyConfigured):
                get_settings()


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"QUEUE": {}}, r"MQLITE has no option 'QUEUE'; did you mean 'QUEUES'\?"),
        ({"queues": {}}, r"MQLITE has no option 'queues'"),
        ({"MAX_BODY_SIZE": 1}, r"did you mean 'MAX_BODY_BYTES'\?"),
        ({"XYZ": 1}, r"no option 'XYZ'; known: DATABASE, .*MAX_BODY_BYTES, QUEUES"),
        (
            {"QUEUES": {"emails": {"lock_durations": 1}}},
            r"\['QUEUES'\]\['emails'\] has no option 'lock_durations'.* mean 'lock_duration'\?",
        ),
        ({"QUEUES": {"emails": {"max_delivery": 1}}}, r"did you mean 'max_delivery_count'\?"),
        ({"QUEUES": {"emails": {5: 1}}}, r"has no option 5"),
    ],
)
def test_an_unknown_option_is_named_with_the_one_that_was_meant(value, message):
    with pytest.raises(ImproperlyConfigured, match=message):
        settings_of(value)


@pytest.mark.parametrize("value", [None, [], "QUEUES", 5])
def test_a_setting_that_is_no_dict_is_refused(value):
    with pytest.raises(ImproperlyConfigured, match="MQLITE must be a dict"):
        settings_of(value)


@pytest.mark.parametrize("value", [None, ["emails"], "emails", 5])
def test_queues_that_are_no_dict_are_refused_by_name(value):
    with pytest.raises(ImproperlyConfigured, match=r"MQLITE\['QUEUES'\]"):
        settings_of({"QUEUES": value})


@pytest.mark.parametrize("value", [None, ["lock_duration"], "lock_duration", 5])
def test_queue_options_that_are_no_dict_are_refused_by_name(value):
    with pytest.raises(ImproperlyConfigured, match=r"MQLITE\['QUEUES'\]\['emails'\]"):
        settings_of({"QUEUES": {"emails": value}})


@pytest.mark.parametrize("name", ["", "a b", "-a", 5, None])
def test_a_name_that_no_queue_can_have_is_refused(name):
    with pytest.raises(ImproperlyConfigured, match="Invalid queue name"):
        settings_of({"QUEUES": {name: {}}})


@pytest.mark.parametrize("value", [0, -1, 1.5, True, "10", None, NAN, 2**63])
def test_a_wrong_body_limit_is_refused_by_name(value):
    with pytest.raises(ImproperlyConfigured, match=r"MQLITE\['MAX_BODY_BYTES'\]"):
        settings_of({"MAX_BODY_BYTES": value})


@pytest.mark.parametrize("value", [5, True, "", ["default"]])
def test_a_wrong_database_is_refused_by_name(value):
    with pytest.raises(ImproperlyConfigured, match=r"MQLITE\['DATABASE'\]"):
        settings_of({"DATABASE": value})


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
    *(("ordering_mode", value) for value in ("fifo", "", None, 5, [], "STANDARD")),
]


@pytest.mark.parametrize(("option", "value"), WRONG)
def test_a_wrong_value_of_a_queue_option_is_refused_by_name(option, value):
    with pytest.raises(ImproperlyConfigured, match=rf"queue 'q'\['{option}'\]"):
        queue_config({option: value}, "queue 'q'")


@pytest.mark.parametrize("name", ["DLQ_MAX_AGE", "DLQ_MAX_COUNT", "DLQ_MAX_BYTES"])
@pytest.mark.parametrize("value", [0, -1, NAN, "5", True])
def test_a_wrong_bound_on_dead_letters_is_refused_by_name(name, value):
    with pytest.raises(ImproperlyConfigured, match=rf"MQLITE\['{name}'\]"):
        settings_of({name: value})


def test_no_bound_on_dead_letters_is_said_with_none_and_is_the_default():
    own = queue_config({"dlq_max_count": None, "dlq_max_age": 60}, "queue 'q'")

    assert (own.dlq_max_count, own.dlq_max_age_ms, own.dlq_max_bytes) == (-1, 60_000, 0)
    assert settings_of({"DLQ_MAX_COUNT": 5}).dlq_max_count == 5
    assert settings_of({"DLQ_MAX_COUNT": None}) == settings_of({})


def test_every_queue_option_has_wrong_values_among_these_tests():
    assert set(QUEUE_OPTIONS) == {option for option, _ in WRONG}


def test_sqlite_options_are_immediate_wal_and_full():
    options = sqlite_options()

    assert options["transaction_mode"] == "IMMEDIATE"
    assert "journal_mode=WAL" in options["init_command"]
    assert "synchronous=FULL" in options["init_command"]
    assert options["timeout"] == 5


def test_sqlite_options_take_another_timeout_and_durability():
    options = sqlite_options(timeout=1.5, synchronous="NORMAL")

    assert options["timeout"] == 1.5
    assert "synchronous=NORMAL" in options["init_command"]


@pytest.mark.parametrize("value", ["OFF", "full", "FULL; DROP TABLE x", None, 2])
def test_a_synchronous_that_breaks_the_promises_is_refused(value):
    with pytest.raises(ImproperlyConfigured, match="synchronous must be FULL, NORMAL or EXTRA"):
        sqlite_options(synchronous=value)
