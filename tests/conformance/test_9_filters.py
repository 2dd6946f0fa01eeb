"""9.6 Filters."""

import logging
import sys

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.db import connection

from django_mqlite import filters, publish
from django_mqlite.models import Message, Queue, Subscription

pytestmark = [pytest.mark.django_db, pytest.mark.rule("9.6")]

HEADERS = {
    "subject": "order.paid.eu",
    "properties": {"country": "se", "total": "250"},
    "correlation_id": "c",
    "reply_to": "r",
    "message_id": "m",
    "group_id": "customer-7",
    "content_type": "application/vnd.order+json",
    "delay": 60,
}

TRUE = [
    'subject == "order.paid.eu"',
    'subject.startsWith("order.")',
    'subject_parts[1] == "paid" && size(subject_parts) == 3',
    '"eu" in subject_parts',
    'properties.country == "se"',
    'properties["total"] == "250"',
    "int(properties.total) >= 250",
    '"country" in property_keys',
    "has(properties.country) && !has(properties.city)",
    'group_id == "customer-7"',
    'correlation_id == "c" && reply_to == "r" && message_id == "m"',
    'content_type.endsWith("+json")',
    "body_size == 14",
    'enqueued_at == timestamp("2026-01-01T00:00:00Z")',
    'visible_at - enqueued_at == duration("60s")',
    "visible_at > enqueued_at",
    'subject.matches("^order\\\\.(paid|sent)")',
    "true",
    'subject_parts.exists(part, part == "paid")',
    'property_keys.all(key, key != "city")',
    'subject_parts.filter(part, part != "eu").exists_one(part, part == "paid")',
    'subject in ["order.paid." + "eu"] && (subject_parts[0]) in (["order"])',
    '"x.all(a, b.all(c, len(c)))" != subject // len(subject)',
    """'\\'len(' != subject && r'\\' != subject && b"\\"(" != b\'\'\'len(\'\'\'""",
]
# One call of each function that the documentation names.
TRUE += [
    'subject.contains("paid") && subject.endsWith("eu") && properties.size() == 2',
    'double("1.5") == 1.5 && uint("1") == 1u && string(1) == "1" && dyn(1) == 1',
    'bytes("a") == b"a" && type(1) == type(2)',
    "enqueued_at.getFullYear() == 2026 && enqueued_at.getMonth() == 0",
    "enqueued_at.getDate() == 1 && enqueued_at.getDayOfMonth() == 0",
    "enqueued_at.getDayOfWeek() == 4 && enqueued_at.getDayOfYear() == 0",
    "enqueued_at.getHours() == 0 && enqueued_at.getMinutes() == 0",
    "enqueued_at.getSeconds() == 0 && enqueued_at.getMilliseconds() == 0",
    '["a"].existsOne(x, x == "a")',
    'length("café") == 4 && length(subject_parts) == 3',
    'member(properties, "country") == "se" && member(properties, "city") == null',
    'optional_member(member(properties, "city"), "x") == null',
]
FALSE = [
    'subject == "other"',
    'properties.country != "se"',
    'has(properties.city) && properties.city == "x"',
    "body_size > 14",
    "false",
]
# Missing keys, values that cannot be compared, and results that are not true or false.
FAILING = [
    'properties.city == "x"',
    'properties["city"] == "x"',
    "subject_parts[9] == ''",
    "int(subject) == 1",
    'subject + 1 == "x"',
    "1 / 0 == 1",
    'subject.matches("[")',
]
NOT_BOOLEAN = ["subject", "1", "properties", "null", '"true"']


def publish_through(filter):
    Subscription.objects.subscribe("orders", "filtered", filter=filter)
    Subscription.objects.subscribe("orders", "everything")
    published = publish("orders", {"order": 42.5}, **HEADERS)
    assert published[0].queue == "everything"
    return len(published) == 2


@pytest.mark.parametrize(
    ("filter", "copied"), [*((text, True) for text in TRUE), *((text, False) for text in FALSE)]
)
def test_message_is_copied_if_the_filter_is_true(clock, filter, copied, caplog):
    assert publish_through(filter) is copied
    assert caplog.records == []


@pytest.mark.parametrize("filter", FAILING + NOT_BOOLEAN)
def test_filter_that_fails_is_logged_and_copies_nothing(clock, filter, caplog):
    assert publish_through(filter) is False

    (record,) = caplog.records
    assert (record.name, record.levelno) == ("django_mqlite", logging.WARNING)
    assert "subscription filtered" in record.getMessage()
    assert "42.5" not in record.getMessage()


def test_field_that_was_not_given_is_empty(clock, caplog):
    Subscription.objects.subscribe(
        "orders",
        "bare",
        filter='subject == "" && subject_parts == [] && properties == {} && property_keys == []'
        ' && group_id == "" && correlation_id == "" && reply_to == ""',
    )

    assert len(publish("orders", None)) == 1
    assert caplog.records == []


def test_filter_sees_the_generated_message_id(clock):
    Subscription.objects.subscribe("orders", "with-id", filter="size(message_id) == 32")

    (message,) = publish("orders", None)

    assert len(message.message_id) == 32


def nothing_was_created():
    return not Queue.objects.exists() and not Subscription.objects.exists()


@pytest.mark.parametrize("filter", ["subject ==", "(", "subject = 'x'", "'", "\0", "a b", "=="])
def test_filter_with_invalid_syntax_is_refused(clock, filter):
    with pytest.raises(ValueError, match="CEL"):
        Subscription.objects.subscribe("orders", "filtered", filter=filter)

    assert nothing_was_created()


@pytest.mark.parametrize("name", ["body", "data", "priority", "sbject", "properties_", "queue"])
def test_filter_with_an_unknown_name_is_refused(clock, name):
    with pytest.raises(ValueError, match=rf"uses {name};.*subject_parts"):
        Subscription.objects.subscribe("orders", "filtered", filter=f'{name} == "x"')

    assert nothing_was_created()


@pytest.mark.parametrize(
    ("filter", "function"),
    [
        ('duration("24h") < days(1)', "days()"),
        ("len(subject) > 3", "len()"),
        ('subject == "a" || len(subject) > 3', "len()"),
        ("subject_parts.all(a, len(a) == 1)", "len()"),
        ('"\\"" == len("")', "len()"),
        ("r'\\' == len('')", "len()"),
        ('startsWith(subject, "a")', "startsWith()"),
        ('subject.lowerAscii() == "a"', "value.lowerAscii()"),
        ('subject . lowerAscii ( ) == "a"', "value.lowerAscii()"),
        ("subject.int() == 1", "value.int()"),
        ("subject_parts.map(part, part + part).size() == 1", "value.map()"),
    ],
)
def test_filter_with_an_unknown_function_is_refused(clock, filter, function):
    with pytest.raises(ValueError, match="A filter has no function") as refused:
        Subscription.objects.subscribe("orders", "filtered", filter=filter)

    assert f"no function {function};" in str(refused.value)
    assert "size()" in str(refused.value)
    assert nothing_was_created()


def nested(depth):
    return f"[0,1,2].all(a{depth}, {nested(depth - 1)})" if depth else "true"


@pytest.mark.parametrize(
    ("filter", "refused"),
    [
        (nested(2), "all() inside another loop"),
        (nested(8), "all() inside another loop"),
        ("subject_parts.all(a, [[1].exists(b, b == 1)] == [true])", "exists() inside another"),
        ("subject_parts.exists(a, has({'x': [1].filter(b, true)}.x))", "filter() inside another"),
        ("[1].exists_one(a, [1] . existsOne // (\n (b, true))", "existsOne() inside another"),
        ("+".join(["subject"] * 34) + " == ''", "at most 32 additions, not 33"),
    ],
)
def test_filter_with_unbounded_cost_is_refused(clock, filter, refused):
    with pytest.raises(ValueError, match="A filter has") as error:
        Subscription.objects.subscribe("orders", "filtered", filter=filter)

    assert refused in str(error.value)
    assert nothing_was_created()


def test_stored_filter_with_unbounded_cost_is_not_run(clock, caplog):
    Subscription.objects.subscribe("orders", "filtered")
    with connection.cursor() as cursor:
        cursor.execute("UPDATE mqlite_subscriptions SET filter = %s", [nested(30)])

    assert publish("orders", None) == []
    assert "inside another loop" in caplog.text


@pytest.mark.parametrize(
    ("filter", "error"),
    [(1, TypeError), (b"true", TypeError), ("true" + " " * 5_000, ValueError)],
    ids=["int", "bytes", "long"],
)
def test_filter_that_is_not_an_expression_is_refused(clock, filter, error):
    with pytest.raises(error, match="filter"):
        Subscription.objects.subscribe("orders", "filtered", filter=filter)

    assert nothing_was_created()


def test_refused_filter_keeps_the_former_one(clock):
    Subscription.objects.subscribe("orders", "filtered", filter='subject == "a"')

    with pytest.raises(ValueError, match="CEL"):
        Subscription.objects.subscribe("orders", "filtered", filter="(")

    assert Subscription.objects.get().filter == 'subject == "a"'
    assert len(publish("orders", None, subject="a")) == 1


@pytest.fixture
def without_cel(monkeypatch):
    """Make the import of `cel` fail, as without the extra [filters]."""
    monkeypatch.setitem(sys.modules, "cel", None)
    filters._cel.cache_clear()
    filters.compiled.cache_clear()
    yield
    filters._cel.cache_clear()
    filters.compiled.cache_clear()


def test_filter_without_the_extra_is_refused_with_advice(clock, without_cel):
    with pytest.raises(ImproperlyConfigured, match=r"django-mqlite\[filters\]"):
        Subscription.objects.subscribe("orders", "filtered", filter="true")
    assert nothing_was_created()

    Subscription.objects.subscribe("orders", "everything")
    assert len(publish("orders", None)) == 1


def test_publish_to_a_filter_without_the_extra_is_refused(clock, request):
    Subscription.objects.subscribe("orders", "filtered", filter="true")
    request.getfixturevalue("without_cel")

    with pytest.raises(ImproperlyConfigured, match=r"django-mqlite\[filters\]"):
        publish("orders", None)

    assert not Message.objects.exists()
