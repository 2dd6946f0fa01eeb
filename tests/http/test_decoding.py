"""Requests are decoded strictly, with the leniencies of Go's encoding/json."""

import pytest

from django_mqlite.http import wire

pytestmark = pytest.mark.rule("19.2")

ACCEPTED = [
    # keys in any case
    (b'{"Queue":"q"}', {"queue": "q"}),
    (b'{"QUEUE":"q","Messages":[{"Body":"YQ=="}]}', {"queue": "q", "bodies": [b"a"]}),
    # null is the zero value
    (b"null", {"queue": ""}),
    (b'{"queue":null,"messages":null,"ttl_ms":null}', {"queue": "", "bodies": [], "ttl_ms": 0}),
    (b'{"messages":[null,{"body":null,"properties":null}]}', {"bodies": [b"", b""]}),
    (b'{"messages":[{"properties":{"A":null}}]}', {"properties": [{"A": ""}]}),
    # the last of equal keys counts
    (b'{"queue":"a","queue":"b"}', {"queue": "b"}),
    (b'{"queue":"a","Queue":"b"}', {"queue": "b"}),
    # bodies
    (b'{"messages":[{"body":"YQ\\n=\\r\\n="}]}', {"bodies": [b"a"]}),
    (b'{"messages":[{"body":[97,null,255]}]}', {"bodies": [b"a\x00\xff"]}),
    (b'{"messages":[{"body":""}]}', {"bodies": [b""]}),
    # texts
    (b'{"queue":"\\ud800x"}', {"queue": "\ufffdx"}),
    (b'{"queue":"\\ud83d\\ude00"}', {"queue": "\U0001f600"}),
    (b'{"queue":"\xff"}', {"queue": "\ufffd"}),
    # numbers
    (b'{"ttl_ms":9223372036854775807}', {"ttl_ms": 2**63 - 1}),
    (b'{"ttl_ms":-9223372036854775808}', {"ttl_ms": -(2**63)}),
    # spaces
    (b' {"queue": "q"} \r\n\t', {"queue": "q"}),
    # fields that only the broker sets
    (b'{"messages":[{"seq_number":5,"lock_token":"x","state":"active"}]}', {"bodies": [b""]}),
]

REFUSED = [
    *(b"", b"  ", b"[]", b'"x"', b"1", b"{", b"not json", b"\xef\xbb\xbf{}"),
    *(b'{"quee":"q"}', b'{"quee":null}', b'{"messages":[{"bdy":""}]}'),
    *(b'{"queue":"q"}{}', b'{"queue":"q"} x', b'{"queue":"q"},'),
    *(b'{"queue":1}', b'{"messages":{}}', b'{"messages":[1]}', b'{"ttl_ms":"5"}'),
    *(b'{"ttl_ms":1.0}', b'{"ttl_ms":1e3}', b'{"ttl_ms":true}', b'{"ttl_ms":NaN}'),
    *(b'{"ttl_ms":9223372036854775808}', b'{"ttl_ms":-9223372036854775809}', b'{"ttl_ms":01}'),
    *(b'{"messages":[{"body":"YQ"}]}', b'{"messages":[{"body":"Y Q=="}]}'),
    *(b'{"messages":[{"body":"YQ==="}]}', b'{"messages":[{"body":"_-8="}]}'),
    *(b'{"messages":[{"body":[256]}]}', b'{"messages":[{"body":["a"]}]}'),
    *(b'{"messages":[{"properties":{"a":1}}]}', b'{"queue":"a\nb"}', b"[" * 100_000),
]


def facts_of(request):
    return {
        "queue": request.queue,
        "ttl_ms": request.ttl_ms,
        "bodies": [message.body for message in request.messages],
        "properties": [message.properties for message in request.messages],
    }


@pytest.mark.parametrize(("body", "facts"), ACCEPTED)
def test_lenient_body_is_decoded_as_by_go(body, facts):
    decoded = facts_of(wire.Decoder(wire.SendRequest)(body))

    assert {name: decoded[name] for name in facts} == facts


@pytest.mark.parametrize("body", REFUSED, ids=lambda body: repr(body[:40]))
def test_invalid_body_is_refused(body):
    with pytest.raises(ValueError, match=r"\w"):
        wire.Decoder(wire.SendRequest)(body)


def test_optional_parts_may_be_null_and_in_any_case():
    subscribe = wire.Decoder(wire.SubscribeRequest)
    create = wire.Decoder(wire.CreateQueueRequest)

    assert subscribe(b'{"filter":null}').filter is None
    assert subscribe(b'{"Filter":{"EXPR":"x"}}').filter.expr == "x"
    assert create(b'{"config":null}').config.kind == ""
    assert create(b'{"config":{"Dead_Letter_On_Expire":null}}').config.dead_letter_on_expire is None


@pytest.mark.parametrize("body", [b"", b'{"quee":1}', b'{"queue":"q"}{}', b'{"queue":1.0}'])
def test_invalid_body_is_an_invalid_argument(client, body):
    response = client.post("Send", body)

    assert response.status_code == 400
    assert response.json()["code"] == "invalid_argument"


@pytest.mark.parametrize("method", ["ListQueues", "ListSubscriptions", "Status"])
def test_some_rpcs_do_not_read_their_body(client, method):
    assert client.post(method, b"anything").status_code == 200
