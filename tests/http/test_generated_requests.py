"""Generated requests never make the broker fail, and never change what their key may not change.

`make fuzz` sends 100,000 of them.
"""

import os
from typing import Any

import pytest
from django.db import connections
from hypothesis import HealthCheck, Phase, given, settings

from django_mqlite.models import AccessKey
from django_mqlite.types import RIGHTS
from tests.http.generated import SHUT, Generated, requests
from tests.http.serving import Client
from tests.support.workers import ALIAS

REQUESTS = int(os.environ.get("MQLITE_TEST_FUZZ_REQUESTS", "0"))
"""The number of random requests; by default, 300 that are the same in each run."""

FIELDS_OF_CODES = {"code", "message"}


@pytest.fixture
def server(server_of):
    return server_of("runbroker")


@pytest.fixture
def root(server, http):
    return Client(url=server.url, http=http)


@pytest.fixture
def headers(file) -> dict[str, dict[str, str]]:
    """The headers of a client with each key: all rights on the open queues, one of them, none."""
    keys = AccessKey.objects.db_manager(ALIAS)
    rights: dict[str, Any] = {
        "all": {right: ["open-*"] for right in RIGHTS},
        "revoked": {right: ["*"] for right in RIGHTS},
        **{right: {right: ["open-*"]} for right in RIGHTS},
    }
    secrets = {name: keys.create_key(f"fuzz-{name}", **rights[name]).secret for name in rights}
    keys.revoke("fuzz-revoked")
    secrets["wrong"] = "mqk_" + "0" * 64
    return {
        "none": {},
        **{name: {"Authorization": f"Bearer {secret}"} for name, secret in secrets.items()},
    }


@pytest.fixture
def shut(root, file):
    """Return the rows that no key may change: messages in each state, a topic, a lease."""
    for name in ("shut-queue", "open-1", "open-2"):
        root.call("CreateQueue", name=name, config={"lock_duration_ms": 3_600_000})
    for topic, name in (("shut-topic", "shut-copy"), ("open-topic", "open-copy")):
        root.call("Subscribe", topic=topic, name=name, filter={"expr": 'subject == "a"'})
    root.send("shut-queue", *(b"%d" % number for number in range(5)))
    root.call(
        "Send",
        queue="shut-queue",
        messages=[{"body": ""}],
        scheduled_enqueue_time_ms=4_000_000_000_000,
    )
    for method in ("Defer", "Reject"):
        root.settle(method, "shut-queue", root.receive_one("shut-queue"))
    lease = root.receive_one("shut-queue")
    held = {
        "queue": "shut-queue",
        "seq_number": lease["seq_number"],
        "lock_token": lease["lock_token"],
    }
    before = rows_of_shut_queues()
    assert {row[2] for row in before["mqlite_messages"]} == {
        *("active", "locked", "scheduled", "deferred", "dead_lettered")
    }
    return held, before


def rows_of_shut_queues() -> dict[str, list[tuple[Any, ...]]]:
    names = ", ".join(f"'{name}'" for name in SHUT)
    columns = {
        "mqlite_messages": "queue",
        "mqlite_queues": "name",
        "mqlite_subscriptions": "subscription",
        "mqlite_settlement_receipts": "queue",
    }
    with connections[ALIAS].cursor() as cursor:
        rows = {}
        for table, column in columns.items():
            cursor.execute(f"SELECT * FROM {table} WHERE {column} IN ({names}) ORDER BY 1, 2")
            rows[table] = cursor.fetchall()
    return rows


@pytest.mark.rule("24.6")
def test_generated_requests_are_answered_and_stay_within_their_rights(server, root, headers, shut):
    document = root.http.get(f"{root.url}/openapi.json").json()
    lease_of_shut_queue, before = shut
    leases = [lease_of_shut_queue]
    statuses: set[int] = set()

    @settings(
        max_examples=REQUESTS or 300,
        derandomize=not REQUESTS,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(requests(document))
    def send(generated: Generated) -> None:
        response = root.http.request(
            generated.method,
            root.url + generated.path,
            headers=headers[generated.key],
            content=generated.content(leases),
        )
        statuses.add(response.status_code)
        check_answer(generated, response, document)
        leases.extend(leases_in(generated, response))
        del leases[1:-20]

    send()

    assert rows_of_shut_queues() == before
    assert "Traceback" not in server.output
    assert statuses >= {200, 400, 401, 403, 404}


def check_answer(generated: Generated, response: Any, document: dict[str, Any]) -> None:
    assert response.status_code < 500, (generated, response.text)
    assert response.headers["content-type"] == "application/json"
    body = response.json()
    if generated.key in ("none", "wrong", "revoked"):
        assert (response.status_code, body["code"]) == (401, "unauthenticated"), generated
    if response.status_code != 200:
        assert set(body) == FIELDS_OF_CODES, generated
        assert body["code"], generated
        assert body["message"], generated
        return
    content = document["paths"][generated.path]["post"]["responses"]["200"]["content"]
    name = content["application/json"]["schema"]["$ref"].rpartition("/")[2]
    schema = document["components"]["schemas"][name]
    assert set(schema.get("required", ())) <= set(body) <= set(schema["properties"]), generated


def leases_in(generated: Generated, response: Any) -> list[dict[str, Any]]:
    """Return the leases that a response gives."""
    if response.status_code != 200 or not isinstance(generated.body, dict):
        return []
    return [
        {
            "queue": generated.body.get("queue"),
            "seq_number": message["seq_number"],
            "lock_token": message["lock_token"],
        }
        for message in response.json().get("messages") or ()
        if "lock_token" in message
    ]
