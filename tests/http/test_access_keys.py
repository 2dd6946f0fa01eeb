"""Rights of access keys, on each kind of server."""

import dataclasses

import pytest

from django_mqlite.models import AccessKey
from tests.http.serving import lease_of
from tests.support.workers import ALIAS

pytestmark = pytest.mark.rule("19.3")


@pytest.fixture
def client_of(client, file):
    """Return a client with a new access key of these rights."""

    def client_of(**rights):
        new = AccessKey.objects.db_manager(ALIAS).create_key(client.new_name("key"), **rights)
        headers = {"Authorization": f"Bearer {new.secret}"}
        return dataclasses.replace(client, headers=headers)

    return client_of


DENIED = (403, "permission_denied")


def test_key_may_do_what_its_rights_say_on_its_queues(client, client_of):
    mine, other = client.queue(), client.queue()
    sender, listener = client_of(send=[mine]), client_of(listen=[mine])

    assert sender.send(mine)
    assert sender.refused("Send", queue=other, messages=[{}]) == DENIED
    assert sender.refused("Receive", queue=mine) == DENIED
    received = listener.receive_one(mine)
    assert listener.refused("Receive", queue=other) == DENIED
    assert listener.refused("Send", queue=mine, messages=[{}]) == DENIED
    assert sender.refused("Complete", **lease_of(mine, received)) == DENIED
    assert listener.settle("Complete", mine, received) == {"ok": True}


@pytest.mark.parametrize(
    ("method", "right"),
    [
        *((method, "send") for method in ("Send", "Schedule", "Cancel")),
        *(
            (method, "listen")
            for method in (
                *("Receive", "Complete", "CompleteBatch", "Abandon", "Reject", "Defer", "Renew"),
                *("RenewBatch", "ReceiveDeferred", "Peek", "Stats"),
            )
        ),
        *((method, "manage") for method in ("Redrive", "Purge")),
    ],
)
def test_rpc_needs_one_right_which_the_error_names(client, client_of, method, right):
    queue = client.queue()
    others = {name: ["*"] for name in ("send", "listen", "manage") if name != right}
    request = {"queue": queue, **({"messages": []} if method in ("Send", "Schedule") else {})}

    denied = client_of(**others).post(method, request)
    allowed = client_of(**{right: [queue]}).post(method, request)

    assert (denied.status_code, denied.json()["code"]) == DENIED
    assert repr(right) in denied.json()["message"]
    assert repr(queue) in denied.json()["message"]
    assert allowed.status_code != 403


def test_manager_of_some_queues_creates_and_lists_only_those(client, client_of):
    prefix = client.new_name("team")
    client.queue()
    manager = client_of(manage=[f"{prefix}*"])

    assert manager.call("CreateQueue", name=f"{prefix}-q") == {}
    assert manager.refused("CreateQueue", name="other") == DENIED
    assert manager.call("Subscribe", topic=f"{prefix}-t", name=f"{prefix}-s") == {}
    assert manager.refused("Subscribe", topic="t", name=f"{prefix}-s2") == DENIED
    assert manager.refused("Subscribe", topic=f"{prefix}-t", name="s") == DENIED
    assert manager.refused("Redrive", queue=f"{prefix}-q", target="other") == DENIED
    names = [queue["name"] for queue in manager.call("ListQueues")["queues"]]
    assert names == [f"{prefix}-q", f"{prefix}-s"]
    assert len(manager.call("ListSubscriptions")["subscriptions"]) == 1


def test_status_and_metrics_need_the_right_to_manage_every_queue(client, client_of):
    some, every = client_of(manage=["a*"]), client_of(manage=["*"])

    assert some.refused("Status") == DENIED
    assert every.call("Status")["remote"] is False
    responses = [
        client.http.get(client.url + "/metrics", headers=who.headers) for who in (some, every)
    ]
    assert [response.status_code for response in responses] == [403, 200]


def test_unknown_expired_and_revoked_keys_are_refused(client, client_of, file):
    keys = AccessKey.objects.db_manager(ALIAS)
    name = client.new_name("key")
    revoked = keys.create_key(name, manage=["*"]).secret
    keys.revoke(name)
    for secret in (revoked, "mqk_" + "0" * 64, "mqk_x"):
        stranger = dataclasses.replace(client, headers={"Authorization": f"Bearer {secret}"})
        assert stranger.refused("ListQueues") == (401, "unauthenticated")
