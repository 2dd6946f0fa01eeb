"""Filters of HTTP clients, from Subscribe to the copies that arrive."""

import time

import pytest

from tests.conformance.test_9_filter_language import DOCUMENTED, MESSAGES
from tests.http.serving import Client, b64

pytestmark = [pytest.mark.django_db, pytest.mark.rule("9.7")]

# The time of a test is not known, and its delays are not exact.
EXPRESSIONS = [
    expression
    for expression in DOCUMENTED
    if "Hour()" not in expression and "hours(2)" not in expression
]


@pytest.fixture
def client(server_of, http):
    return Client(url=server_of("runbroker").url, http=http)


def wire_message(message):
    fields = {name: value for name, value in message.items() if name not in ("data", "delay")}
    return {"body": b64(message["data"]), **fields}


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_filter_of_a_client_selects_the_copies(client, expression):
    topic = client.new_name("t")
    subscription = client.subscription(topic, expression)

    matching = set()
    for name, message in MESSAGES.items():
        due_at = int(time.time() * 1000) + message["delay"] * 1000 if "delay" in message else 0
        answer = client.call(
            "Send",
            queue=topic,
            messages=[wire_message(message)],
            scheduled_enqueue_time_ms=due_at,
        )
        if answer["seq_numbers"] != [0]:
            matching.add(name)

    assert matching == DOCUMENTED[expression]
    assert client.stats(subscription)["total"] == len(matching)
    listed = client.call("ListSubscriptions")["subscriptions"]
    assert {"topic": topic, "name": subscription, "expr": expression} in listed


def test_filter_that_cannot_be_translated_is_refused_by_name(client):
    request = {"topic": client.new_name("t"), "name": client.new_name("s")}

    response = client.post("Subscribe", request | {"filter": {"expr": "subject | upper() == 'A'"}})

    assert response.status_code == 400
    assert response.json()["code"] == "invalid_argument"
    assert "the pipe |" in response.json()["message"]
