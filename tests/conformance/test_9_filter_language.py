"""9.7 Filters in the language of mqlite's clients, translated to CEL."""

import pytest
from django.db import connection

from django_mqlite import publish
from django_mqlite.filters import check_filter
from django_mqlite.http.filter_language import translate
from django_mqlite.models import Subscription

pytestmark = [pytest.mark.django_db, pytest.mark.rule("9.7")]

DOCUMENT = b'{"amount": 150, "tier": "gold", "nested": {"k": "v"}, "tags": ["a", "b"], "no": null}'
ORDER = {
    "data": DOCUMENT,
    "content_type": "application/json",
    "subject": "orders.eu.new",
    "properties": {"tier": "gold", "region": "eu"},
    "group_id": "g1",
    "correlation_id": "c1",
    "reply_to": "r1",
    "message_id": "m1",
}
BARE = {"data": b""}
PAYMENT = {
    "data": "urgent: café".encode(),
    "content_type": "text/plain",
    "subject": "payment.é",
    "properties": {"test": "true", "n": "7"},
    "delay": 7_200,
}
MESSAGES = {"order": ORDER, "bare": BARE, "payment": PAYMENT}
ALL = {"order", "bare", "payment"}

# The examples of mqlite's documentation.
DOCUMENTED = {
    'subject_parts[0] == "orders"   // topic hierarchy': {"order"},
    'properties["tier"] == "gold" && properties["region"] == "eu"': {"order"},
    '"priority" in properties && properties["priority"] == "high"': set(),
    'subject startsWith "payment." and not (properties["test"] == "true")': set(),
    "body_size < 4096": ALL,
    "visible_at - enqueued_at > days(1)": set(),
    'len(subject_parts) >= 2 && subject_parts[1] == "eu"': {"order"},
    '"amount" in body_json && body_json.amount > 100': {"order"},
    'body_text contains "urgent"': {"payment"},
    "visible_at - enqueued_at == hours(2)": {"payment"},
    'visible_at - enqueued_at > duration("1d")': set(),
    "enqueued_at.Hour() >= 9 && enqueued_at.Hour() <= 21": set(),
    "len(property_keys) > 0": {"order", "payment"},
    '"tier" in property_keys': {"order"},
    'body_json["tier"] == "gold"': {"order"},
}

OPERATORS = {
    # comparison
    'subject == "orders.eu.new"': {"order"},
    'subject != ""': {"order", "payment"},
    "body_size <= 0": {"bare"},
    "body_size >= 1": {"order", "payment"},
    'subject > "p"': {"payment"},
    "visible_at > enqueued_at": {"payment"},
    "1 == 1.0": ALL,
    # boolean operators, in both notations, and their precedence
    'subject == "" or group_id == "g1"': {"bare", "order"},
    'subject == "" || group_id == "g1" && correlation_id == "c1"': {"bare", "order"},
    '(subject == "" || group_id == "g1") && correlation_id == "c1"': {"order"},
    '!(subject == "")': {"order", "payment"},
    "not true or true": ALL,
    'subject == "" ? true : group_id == "g1"': {"bare", "order"},
    # strings
    'subject endsWith ".new"': {"order"},
    'subject contains "eu"': {"order"},
    'subject not contains "eu"': {"bare", "payment"},
    'not (subject startsWith "orders")': {"bare", "payment"},
    'subject matches "^orders\\\\.(eu|us)"': {"order"},
    "subject matches `^[a-z]+\\.[^a-z]$`": {"payment"},
    '"a" + "b" == "ab"': ALL,
    'group_id + "-" + reply_to == "g1-r1"': {"order"},
    'hasPrefix(subject, "pay") || hasSuffix(subject, "new")': {"order", "payment"},
    # membership
    '"tier" in properties': {"order"},
    '"tier" not in properties': {"bare", "payment"},
    'subject in ["orders.eu.new", "x"]': {"order"},
    "body_size in [0, 1]": {"bare"},
    '"k" in body_json.nested': {"order"},
    '"b" in body_json.tags': {"order"},
    # elements; a missing property is ''
    'properties["absent"] == ""': ALL,
    'properties["tier"] == ""': {"bare", "payment"},
    'properties.region == "eu"': {"order"},
    'properties["ti" + "er"] == "gold"': {"order"},
    'subject_parts[-1] == "new"': {"order"},
    "subject_parts == []": {"bare"},
    # the body; a missing member is nil
    'body_json.nested.k == "v"': {"order"},
    'body_json.tags[0] == "a" && body_json["tags"][-1] == "b"': {"order"},
    "body_json.absent == nil": ALL,
    "body_json.no == nil": ALL,
    'body_json.tier != "gold"': {"bare", "payment"},
    "body_json.absent > 1": set(),
    "body_json?.absent?.k == nil": ALL,
    "body_json.absent.k == nil": set(),
    '(body_json.absent ?? "default") == "default"': ALL,
    "(body_json.amount ?? 0) > 100": {"order"},
    "len(body_json) == 0": {"bare", "payment"},
    'body_text == ""': {"bare"},
    # numbers
    "body_size * 2 - body_size == body_size": ALL,
    "7 / 2 == 3.5": ALL,
    "7 % 4 == 3": ALL,
    "body_size + 0.5 > body_size": ALL,
    "body_json.amount * 2 == 300 && body_json.amount / 4 == 37.5": {"order"},
    "-body_size < 0 and - 3 < -2": {"order", "payment"},
    "0x10 == 16 && 0b11 == 3 && 0o17 == 15 && 1_000 == 1000 && .5 == 5e-1": ALL,
    'int(properties["n"]) > 6': {"payment"},
    'float("1.5") == 1.5 && string(7) == "7"': ALL,
    # lengths are in characters
    "len(subject) == 9": {"payment"},
    'len("café") == 4 && len(`a"b`) == 3': ALL,
    "len(body_json.tags) == 2": {"order"},
    # durations and times
    "minutes(60) == hours(1) && seconds(60) == minutes(1) && weeks(1) == days(7)": ALL,
    'duration("1d12h") == hours(36) && duration("1.5d") == hours(36)': ALL,
    'duration("-90m") == -minutes(90) && duration("0") == seconds(0)': ALL,
    'duration("500ms") + duration("500ms") == seconds(1)': ALL,
    "seconds(body_size) < seconds(1)": {"bare"},
    "enqueued_at + hours(2) == visible_at": {"payment"},
    "enqueued_at.Year() == 2026 && enqueued_at.Month() == 1 && enqueued_at.Day() == 1": ALL,
    "enqueued_at.YearDay() == 1 && enqueued_at.Weekday() == 4": ALL,
    "visible_at.Hour() == 2 && visible_at.Minute() == 0 && visible_at.Second() == 0": {"payment"},
    "(visible_at - enqueued_at).Hours() == 2 && hours(1).Minutes() == 60.0": {"payment"},
    "visible_at <= now()": {"order", "bare"},
    # loops
    'any(subject_parts, # == "eu")': {"order"},
    'all(subject_parts, {# != "eu"})': {"bare", "payment"},
    'none(subject_parts, # startsWith "e")': {"bare", "payment"},
    'one(body_json.tags, # == "a")': {"order"},
    'count(subject_parts, # != "eu") == 2': {"order", "payment"},
    "len(filter(subject_parts, len(#) > 3)) == 1": {"order", "payment"},
    # literals and comments
    "true /* always */": ALL,
    "false": set(),
    """subject == 'orders.eu.new' && "\\x61\\u0061\\141\\n" == 'aaa\n'""".replace("\n'", "\\n'"): {
        "order"
    },
}

# An error on the left side of an operator, or in the only operand, means no match.
FAILING = {
    'subject_parts[9] == "x" || true': set(),
    'true || subject_parts[9] == "x"': ALL,
    'subject_parts[9] == "x" && false': set(),
    'int(properties["absent"]) > 1': set(),
    "body_json.tier > 1": set(),
    "body_json.tags ?? true": {"bare", "payment"},
}

REFUSED = {
    # names and functions
    'nope == "x"': "'nope'",
    "frobnicate(subject)": "frobnicate()",
    'lower(subject) == "a"': "the function lower()",
    "map(subject_parts, #) == []": "the function map()",
    "enqueued_at.Unix() > 1": "Unix of a time",
    "subject.size() > 1": "the method size()",
    "$env == nil": "$env",
    "any(subject_parts, any(subject_parts, # == subject))": "any() inside another loop",
    "count(subject_parts) == 1": "count() without a condition",
    "len(subject, subject) == 1": "len() takes 1 argument(s), not 2",
    # operators
    "subject | upper() == 'A'": "the pipe |",
    "1..3 == []": "the range operator ..",
    "body_size ** 2 > 1": "the operator **",
    "body_size ^ 2 > 1": "the operator ^",
    "subject ?: true": "the operator ?:",
    "subject[0:2] == 'or'": "a slice [:]",
    "subject_parts[:1] == []": "a slice [:]",
    "{'a': 1} == nil": "a map",
    "let x = 1; x == 1": "let",
    "true; true": "several statements",
    # types
    "subject": "true or false; this one is of type string",
    "body_size + 1": "true or false; this one is of type int",
    "subject == 5": "compare string == int",
    "subject_parts < []": "compare strings < strings",
    "visible_at - enqueued_at > 5": "compare duration > int",
    "subject + 1 == nil": "compute string + int",
    "subject and true": "and cannot be applied to a value of type string",
    "not subject startsWith 'x'": "not cannot be applied to a value of type string",
    "body_size contains 'x'": "contains cannot be applied to a value of type int",
    "'x' in subject": "in cannot be applied to a value of type string",
    "subject[0] == 'o'": "[] or . cannot be applied to a value of type string",
    "body_size ? true : false": "the condition of ?: cannot be applied to a value of type int",
    "hours(1.5) > seconds(1)": "hours() cannot be applied to a value of type float",
    "duration(subject) > seconds(1)": "duration() of anything but a literal",
    # syntax
    "subject ==": "an unexpected end",
    "subject == )": "an unexpected ')'",
    "(true": "an unexpected end instead of ')'",
    "true true": "an unexpected 'true'",
    'subject == "a': "an unexpected '\"'",
    "subject == @": "an unexpected '@'",
    "# == 1": "an unexpected '#'",
    '"\\q" == ""': "an unknown escape '\\\\q'",
    '"\\ud800" == ""': "which is no character",
    'duration("1y") > seconds(1)': "an invalid duration '1y'",
    'duration("") > seconds(1)': "an invalid duration ''",
    "weeks(99999999) > seconds(1)": "more than 292 years",
    "body_size > 9223372036854775808": "a number above 9223372036854775807",
    "(" * 40 + "true" + ")" * 40: "more than 25 levels of nesting",
    "!" * 40 + "true": "more than 25 levels of nesting",
    "subject == '" + "é" * 2_048 + "'": "at most 4096 bytes",
    "true" + "||true" * 600: "at most 1000 tokens",
}


@pytest.fixture
def matching(clock):
    """Return the names of the messages that a filter of an HTTP client lets through."""

    def names(expression):
        translated = translate(expression)
        check_filter(translated, translated=True)
        Subscription.objects.subscribe("orders", "filtered")
        with connection.cursor() as cursor:
            cursor.execute("UPDATE mqlite_subscriptions SET filter = %s", [translated])
        return {
            name
            for name, message in MESSAGES.items()
            if publish("orders", message["data"], **without_data(message))
        }

    return names


def without_data(message):
    return {name: value for name, value in message.items() if name != "data"}


@pytest.mark.parametrize(("expression", "expected"), [*DOCUMENTED.items(), *OPERATORS.items()])
def test_filter_matches_as_in_mqlite(matching, expression, expected, caplog):
    assert matching(expression) == expected


@pytest.mark.parametrize(("expression", "expected"), FAILING.items())
def test_filter_that_fails_does_not_match(matching, expression, expected):
    assert matching(expression) == expected


@pytest.mark.parametrize(("expression", "text"), REFUSED.items())
def test_filter_that_cannot_be_translated_is_refused_by_name(expression, text):
    with pytest.raises(ValueError) as refused:  # noqa: PT011 - the text is compared below
        translate(expression)

    assert text in str(refused.value)


@pytest.mark.parametrize("expression", ["", "  ", "// nothing", "/* */\n"])
def test_empty_filter_matches_everything(expression):
    assert translate(expression) == ""


def test_long_chain_is_not_nested_deeply(matching):
    terms = [f'subject == "{number}"' for number in range(150)]

    assert matching(" || ".join([*terms, 'subject == ""'])) == {"bare"}


def test_only_translated_filters_see_the_body():
    for name in ("body_text == ''", "body_json == {}"):
        with pytest.raises(ValueError, match="the variables are"):
            Subscription.objects.subscribe("orders", "filtered", filter=name)

    assert not Subscription.objects.exists()


def test_body_is_not_logged_if_a_filter_fails(matching, caplog):
    assert matching('subject_parts[int(body_json.amount ?? 151.0)] == ""') == set()

    assert len(caplog.records) == 3
    assert "IndexError" in caplog.text
    assert not any(number in caplog.text for number in ("150", "151"))


@pytest.mark.parametrize(
    ("body", "content_type", "expected"),
    [
        (b'{"a": 1}', None, {"a": 1.0}),
        (b'{"a": 1}', "application/vnd.x+JSON", {"a": 1.0}),
        (b'{"a": 1}', "text/plain", {}),
        (b"[1]", "application/json", {}),
        (b"null", "application/json", {}),
        (b"{", "application/json", {}),
        (b"\xff", "application/json", {}),
        (b"[" * 100_000, "application/json", {}),
    ],
)
def test_body_that_is_no_json_object_is_an_empty_one(clock, body, content_type, expected):
    Subscription.objects.subscribe("orders", "filtered")
    size = len(expected)
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE mqlite_subscriptions SET filter = %s", [translate(f"len(body_json) == {size}")]
        )

    assert publish("orders", body, content_type=content_type)
