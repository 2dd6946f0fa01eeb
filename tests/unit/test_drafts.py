"""A message is checked before any SQL runs."""

from datetime import UTC, date, datetime, timedelta, timezone
from types import MappingProxyType

import pytest

from django_mqlite.exceptions import MessageTooLarge, PriorityRefused
from django_mqlite.message import new_message

LIMIT = 1_000
NAN, INFINITY = float("nan"), float("inf")


def drafted(queue="jobs", data=None, **options):
    return new_message(queue, data, **{"max_body_bytes": LIMIT, **options})


def test_a_message_needs_a_queue_and_data_and_nothing_else():
    message = drafted("jobs", {"a": 1})

    assert (message.queue, message.body, message.content_type) == (
        "jobs",
        b'{"a":1}',
        "application/json",
    )
    assert (message.delay_ms, message.visible_at, message.ttl_ms) == (0, None, 0)
    assert (message.priority, message.max_delivery_count) == (0, 0)
    for name in ("message_id", "correlation_id", "reply_to", "group_id", "subject", "properties"):
        assert getattr(message, name) is None


def test_every_option_arrives():
    message = drafted(
        delay=1.5,
        ttl=timedelta(minutes=1),
        priority=-5,
        max_delivery_count=3,
        message_id="m",
        correlation_id="c",
        reply_to="r",
        subject="s",
        content_type="application/vnd.shop+json",
        properties={"b": "2", "a": "1"},
    )

    assert (message.delay_ms, message.ttl_ms, message.priority) == (1_500, 60_000, -5)
    assert (message.max_delivery_count, message.message_id) == (3, "m")
    assert (message.correlation_id, message.reply_to, message.subject) == ("c", "r", "s")
    assert message.content_type == "application/vnd.shop+json"
    assert message.properties == '{"b":"2","a":"1"}'


@pytest.mark.parametrize("size", [0, 1, LIMIT])
def test_a_body_up_to_the_limit_is_taken(size):
    assert len(drafted(data=b"x" * size).body) == size


@pytest.mark.parametrize(
    "data",
    [b"x" * (LIMIT + 1), "é" * (LIMIT // 2 + 1), ["x" * LIMIT]],
    ids=["bytes", "str", "json"],
)
def test_a_body_over_the_limit_is_refused_with_both_sizes(data):
    with pytest.raises(MessageTooLarge) as caught:
        drafted(data=data)

    assert caught.value.size > caught.value.limit == LIMIT
    assert f"{caught.value.size:,}" in str(caught.value)


def test_zero_delay_is_a_value():
    assert drafted(delay=0).delay_ms == 0


def test_zero_delay_beside_visible_at_is_still_both():
    with pytest.raises(ValueError, match="either delay or visible_at"):
        drafted(delay=0, visible_at=datetime(2026, 1, 1, tzinfo=UTC))


def test_zero_priority_is_a_value_and_goes_with_a_group():
    assert drafted(priority=0, group_id="g").group_id == "g"


@pytest.mark.parametrize("ttl", [0, 0.0, timedelta()])
def test_zero_ttl_is_refused_not_ignored(ttl):
    with pytest.raises(ValueError, match="ttl"):
        drafted(ttl=ttl)


@pytest.mark.parametrize("count", [0, -1])
def test_no_delivery_at_all_is_refused(count):
    with pytest.raises(ValueError, match="max_delivery_count"):
        drafted(max_delivery_count=count)


@pytest.mark.parametrize("name", ["delay", "ttl"])
@pytest.mark.parametrize("value", [-1, NAN, INFINITY, 10**400, timedelta.max, timedelta(-1)])
def test_a_length_of_time_out_of_range_is_refused_by_name(name, value):
    with pytest.raises(ValueError, match=f"^{name} "):
        drafted(**{name: value})


@pytest.mark.parametrize("name", ["delay", "ttl"])
@pytest.mark.parametrize("value", ["5", True, b"", [], datetime(2026, 1, 1, tzinfo=UTC)])
def test_what_is_no_length_of_time_is_refused_by_name(name, value):
    with pytest.raises(TypeError, match=f"^{name} "):
        drafted(**{name: value})


def test_an_aware_visible_at_of_any_zone_arrives():
    at = datetime(2026, 1, 1, 2, tzinfo=timezone(timedelta(hours=2)))

    assert drafted(visible_at=at).visible_at == 1_767_225_600_000


def test_a_naive_visible_at_is_refused_not_guessed():
    with pytest.raises(ValueError, match="has no time zone"):
        drafted(visible_at=datetime(2026, 1, 1))  # noqa: DTZ001 - that is the point


@pytest.mark.parametrize("value", [1_767_225_600, "2026-01-01", date(2026, 1, 1), timedelta(1), 0])
def test_a_visible_at_that_is_no_datetime_is_refused_by_name(value):
    with pytest.raises(TypeError, match=r"^visible_at "):
        drafted(visible_at=value)


@pytest.mark.parametrize("year", [1, 1969, 9001, 9999])
def test_a_visible_at_outside_the_representable_time_is_refused_by_name(year):
    with pytest.raises(ValueError, match=r"^visible_at "):
        drafted(visible_at=datetime(year, 6, 1, tzinfo=UTC))


@pytest.mark.parametrize("name", ["priority", "max_delivery_count"])
@pytest.mark.parametrize("value", [2**63, 10**100, -(2**63)])
def test_a_number_outside_63_bits_is_refused_by_name(name, value):
    with pytest.raises(ValueError, match=f"^{name} "):
        drafted(**{name: value})


@pytest.mark.parametrize("value", [2**63 - 1, 1, -1, -(2**63) + 1])
def test_a_priority_of_63_bits_is_taken(value):
    assert drafted(priority=value).priority == value


@pytest.mark.parametrize("name", ["priority", "max_delivery_count"])
@pytest.mark.parametrize("value", ["1", 1.0, NAN, True, False, b"one", [1]])
def test_what_is_no_integer_is_refused_by_name(name, value):
    with pytest.raises(TypeError, match=f"^{name} "):
        drafted(**{name: value})


@pytest.mark.parametrize("priority", [1, -1])
def test_a_priority_contradicts_a_group(priority):
    with pytest.raises(PriorityRefused) as caught:
        drafted(priority=priority, group_id="g")

    assert caught.value.queue == "jobs"


TEXTS = [
    "message_id",
    "correlation_id",
    "reply_to",
    "group_id",
    "subject",
    "content_type",
]


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("value", ["a", "x" * 1_024, "naïve 🐘", " "])
def test_a_text_up_to_1024_characters_arrives(name, value):
    assert getattr(drafted(**{name: value}), name) == value


@pytest.mark.parametrize("name", [*TEXTS, "queue"])
@pytest.mark.parametrize("value", [1, 1.5, True, b"bytes", ["a"], object()])
def test_what_is_no_text_is_a_type_error_that_names_the_argument(name, value):
    with pytest.raises(TypeError, match=f"^{name} must be a str"):
        drafted(**{name: value})


@pytest.mark.parametrize("name", [*TEXTS, "queue"])
@pytest.mark.parametrize("value", ["", "x" * 1_025, "a\0b", "\0", "a\ud800b"])
def test_a_text_that_cannot_be_stored_is_a_value_error_that_names_the_argument(name, value):
    with pytest.raises(ValueError, match=f"^{name} must "):
        drafted(**{name: value})


def test_no_queue_is_a_type_error_that_names_the_argument():
    with pytest.raises(TypeError, match=r"^queue must be a str"):
        drafted(queue=None)


def test_any_mapping_of_str_to_str_will_do_and_an_empty_one_is_kept():
    assert drafted(properties=MappingProxyType({"a": "1"})).properties == '{"a":"1"}'
    assert drafted(properties={}).properties == "{}"


@pytest.mark.parametrize("value", [{"a": 1}, {1: "a"}, {"a": None}, {"a": b"b"}, {None: "a"}])
def test_properties_that_are_not_str_to_str_are_a_type_error(value):
    with pytest.raises(TypeError, match=r"^properties must map str to str"):
        drafted(properties=value)


@pytest.mark.parametrize("value", ["a=b", [("a", "b")], 5, {"a"}])
def test_properties_that_are_no_mapping_are_a_type_error(value):
    with pytest.raises(TypeError, match=r"^properties "):
        drafted(properties=value)


@pytest.mark.parametrize("value", [{"a": "\ud800"}, {"\ud800": "a"}])
def test_properties_with_a_lone_surrogate_are_a_value_error(value):
    with pytest.raises(ValueError, match="properties"):
        drafted(properties=value)


@pytest.mark.parametrize(
    ("data", "error"), [({1: 2}, TypeError), ([NAN], ValueError), (object(), TypeError)]
)
def test_data_that_is_no_strict_json_is_refused(data, error):
    with pytest.raises(error, match="data"):
        drafted(data=data)


def test_an_unknown_option_is_a_type_error():
    with pytest.raises(TypeError, match="prioritty"):
        drafted(prioritty=1)
