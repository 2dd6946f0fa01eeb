"""Paths, methods, authentication, cross-origin headers and sizes, on each kind of server."""

import http.client
import json

import pytest

from tests.http.serving import TOKEN, b64

pytestmark = pytest.mark.rule("19.2")

RPCS = [
    *(
        f"/mqlite.v1.QueueService/{name}"
        for name in (
            *("Send", "Receive", "Complete", "CompleteBatch", "RenewBatch", "Abandon", "Reject"),
            *("Defer", "ReceiveDeferred", "Renew", "Schedule", "Cancel", "Peek", "Stats"),
        )
    ),
    *(
        f"/mqlite.v1.AdminService/{name}"
        for name in (
            *("CreateQueue", "Subscribe", "ListQueues", "ListSubscriptions", "TestFilter"),
            *("Redrive", "Purge", "Status"),
        )
    ),
]


def error_of(response):
    """Return the status and code of an error."""
    body = response.json()
    assert set(body) == {"code", "message"}
    return response.status_code, body["code"]


def test_response_is_compact_json_that_ends_with_a_newline(client):
    queue = client.queue()
    client.send(queue, b"x", subject="<a&b>\u2028é")

    response = client.post("Peek", {"queue": queue})

    assert response.headers["content-type"] == "application/json"
    assert response.content.startswith(b'{"messages":[{"seq_number":')
    assert response.content.endswith(b"}]}\n")
    assert '"subject":"\\u003ca\\u0026b\\u003e\\u2028é"'.encode() in response.content
    assert response.json()["messages"][0]["subject"] == "<a&b>\u2028é"


@pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded", ""])
def test_content_type_of_a_request_is_ignored(client, content_type):
    queue = client.queue()
    body = json.dumps({"queue": queue, "messages": [{"body": b64(b"x")}]}).encode()

    response = client.post("Send", body, headers={"Content-Type": content_type})

    assert response.status_code == 200, response.text


@pytest.mark.parametrize(
    "path",
    [
        "/nope",
        "/mqlite.v1.QueueService/Send/",
        "/mqlite.v1.QueueService",
        "/mqlite.v1.QueueService/send",
        "/metrics/",
        "/healthz/",
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_unknown_path_is_not_found_with_a_fixed_prefix(client, path, method):
    response = client.http.request(method, client.url + path, headers=client.headers)

    assert error_of(response) == (404, "not_found")
    assert response.json()["message"].startswith(f"no such path: {path}")


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PATCH"])
def test_other_method_on_an_rpc_is_unimplemented(client, method):
    response = client.http.request(method, client.path("Send"), headers=client.headers)

    assert error_of(response) == (405, "unimplemented")


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/mqlite.v1.QueueService/Send"),
        ("GET", "/mqlite.v1.QueueService/Send"),
        ("GET", "/nope"),
        ("GET", "/metrics"),
        ("POST", "/uixyz"),
    ],
)
@pytest.mark.parametrize(
    "header", [None, "", "Bearer", "Bearer wrong", f"bearer {TOKEN}", f"Basic {TOKEN}"]
)
def test_request_without_a_valid_token_is_refused_before_anything_else(
    client, method, path, header
):
    headers = {} if header is None else {"Authorization": header}

    response = client.http.request(method, client.url + path, headers=headers, content=b"not json")

    assert error_of(response) == (401, "unauthenticated")
    assert "www-authenticate" not in response.headers


@pytest.mark.parametrize("header", [f"Bearer {TOKEN}", TOKEN])
def test_bearer_before_the_token_is_optional(client, header):
    response = client.post("ListQueues", {}, headers={"Authorization": header})

    assert response.status_code == 200


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_card_lists_every_rpc_without_authentication(client, method):
    response = client.http.request(method, client.url + "/")

    card = response.json()
    assert (response.status_code, response.headers["content-type"]) == (200, "application/json")
    assert set(card) == {
        *("name", "description", "version", "status", "auth", "docs", "endpoints", "health"),
        "metrics",
    }
    assert (card["name"], card["status"], card["auth"]) == ("mqlite", "ok", "bearer")
    assert card["endpoints"] == RPCS
    assert (card["health"], card["metrics"]) == ("/healthz", "/metrics")


def test_health_is_two_letters_without_authentication(client):
    response = client.http.get(client.url + "/healthz")

    assert (response.status_code, response.content) == (200, b"ok")


@pytest.mark.parametrize("path", ["/ui", "/ui/", "/ui/assets/x.js"])
def test_console_is_not_served(client, path):
    assert error_of(client.http.get(client.url + path)) == (404, "not_found")


def test_metrics_have_the_names_of_mqlite(client):
    queue = client.queue()
    client.send(queue, b"x")
    client.settle("Complete", queue, client.receive_one(queue))

    response = client.http.get(client.url + "/metrics", headers=client.headers)

    assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert f'mqlite_queue_messages{{queue="{queue}",state="active"}} 0.0' in response.text
    assert 'mqlite_rpc_duration_seconds_count{rpc="Complete"}' in response.text
    assert f'mqlite_messages_completed_total{{queue="{queue}"}} 1.0' in response.text


def test_every_response_allows_every_origin_while_there_is_authentication(client):
    for response in (
        client.http.get(client.url + "/healthz"),
        client.http.get(client.url + "/nope"),
        client.post("ListQueues"),
    ):
        assert response.headers["access-control-allow-origin"] == "*"
        assert "Origin" not in response.headers.get("vary", "")


@pytest.mark.parametrize("path", ["/", "/mqlite.v1.QueueService/Send", "/nope"])
def test_preflight_is_answered_without_authentication(client, path):
    response = client.http.options(client.url + path)

    assert (response.status_code, response.content) == (204, b"")
    assert response.headers["access-control-allow-methods"] == "GET, POST, OPTIONS"
    assert response.headers["access-control-allow-headers"] == "Authorization, Content-Type"
    assert response.headers["access-control-max-age"] == "86400"


def test_request_over_32_mib_is_too_large(client):
    body = b'{"queue":"' + b"x" * 33 * 2**20

    assert error_of(client.post("Send", body)) == (413, "message_too_large")


def test_request_of_nearly_32_mib_is_read(client):
    queue = client.queue()
    bodies = [b"x" * 2**20] * 23

    assert len(client.send(queue, *bodies)) == 23


def test_body_over_the_limit_refuses_all_messages(client):
    queue = client.queue()
    messages = [{"body": b64(b"x")}, {"body": b64(b"x" * (2**20 + 1))}]

    assert client.refused("Send", queue=queue, messages=messages) == (413, "message_too_large")
    assert client.stats(queue)["total"] == 0


def test_chunked_request_is_read(client):
    queue = client.queue()
    body = json.dumps({"queue": queue, "messages": [{"body": b64(b"x")}]}).encode()

    response = client.http.post(client.path("Send"), headers=client.headers, content=iter([body]))

    assert len(response.json()["seq_numbers"]) == 1


def test_connection_is_kept_after_an_error(client, server):
    connection = http.client.HTTPConnection("127.0.0.1", server.port)
    path = client.path("Send").removeprefix(f"http://127.0.0.1:{server.port}")
    statuses = []
    for token in ("wrong", TOKEN):
        headers = {"Authorization": f"Bearer {token}"}
        connection.request("POST", path, body=b"{}", headers=headers)
        response = connection.getresponse()
        response.read()
        statuses.append(response.status)
    connection.close()

    assert statuses == [401, 200]
