"""`mqlite keys`: list, create and revoke access keys."""

import io
import re

import pytest
from django.core.management import CommandError

from django_mqlite.models import AccessKey

from .calls import answer, mqlite

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("clock")]

RIGHTS = ("--send", "orders*", "--send", "a,b", "--listen", "emails", "--expires", "90d")


def test_create_prints_only_the_secret_on_stdout():
    stderr = io.StringIO()

    secret = mqlite("keys", "create", "shop", *RIGHTS, stderr=stderr).strip()

    key = AccessKey.objects.authenticate(secret)
    assert key.rights == {"send": ["orders*", "a", "b"], "listen": ["emails"]}
    assert key.expires_at.isoformat() == "2026-04-01T00:00:00+00:00"
    assert "Access key shop created." in stderr.getvalue()
    assert secret not in stderr.getvalue()


def test_create_answers_json():
    document = answer("keys", "create", "shop", "--manage", "*")

    assert AccessKey.objects.authenticate(document.pop("secret")).name == "shop"
    assert document == {
        "key": "shop", "send": [], "listen": [], "manage": ["*"], "status": "valid",
        "created_at": "2026-01-01T00:00:00+00:00", "expires_at": None, "last_used_at": None,
        "revoked_at": None,
    }  # fmt: skip


def test_list_shows_rights_and_status_without_digest(clock):
    key, secret = AccessKey.objects.create_key("shop", send=["orders*", "a"], expires_in=60)
    AccessKey.objects.create_key("worker", listen=["*"])
    AccessKey.objects.authenticate(secret)
    key.revoke()

    table, document = mqlite("keys"), answer("keys")

    assert [re.split("  +", line) for line in table.splitlines()] == [
        ["key", "status", "send", "listen", "age", "expires", "last used"],
        ["shop", "revoked", "orders*, a", "-", "0 s", "in 1 min", "0 s ago"],
        ["worker", "valid", "-", "*", "0 s", "never", "never"],
    ]
    assert [key["status"] for key in document["keys"]] == ["revoked", "valid"]
    for text in (table, str(document)):
        assert secret not in text
        assert key.digest not in text


def test_list_without_keys_says_how_to_create_one():
    assert "mqlite keys create NAME" in mqlite("keys")


def test_revoke_ends_a_key_once():
    AccessKey.objects.create_key("shop", send=["*"])

    assert "Access key shop revoked;" in mqlite("keys", "revoke", "shop")
    assert mqlite("keys", "revoke", "shop") == "Access key shop was already revoked.\n"
    assert answer("keys", "revoke", "shop") == {"key": "shop", "revoked": True, "changed": False}


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["create"], "`keys create` needs the name"),
        (["revoke"], "`keys revoke` needs the name"),
        (["revoke", "shop"], "no access key 'shop'"),
        (["create", "shop"], "needs a right"),
        (["create", "a b", "--send", "*"], "Invalid access key name 'a b'"),
        (["create", "shop", "--send", "a b"], "Invalid pattern 'a b' of send"),
        (["revoke", "shop", "--send", "a"], "--send belongs to `keys create NAME`"),
        (["--expires", "90d"], "--expires belongs to `keys create NAME`"),
        (["create", "shop", "--send", "*", "--expires", "soon"], "Invalid duration 'soon'"),
    ],
)
def test_invalid_call_is_refused(arguments, text):
    with pytest.raises(CommandError, match=text.replace("*", r"\*")):
        mqlite("keys", *arguments)

    assert not AccessKey.objects.exists()


def test_name_of_another_key_is_refused():
    AccessKey.objects.create_key("shop", send=["*"])

    with pytest.raises(CommandError, match="choose another name"):
        mqlite("keys", "create", "shop", "--send", "*")
