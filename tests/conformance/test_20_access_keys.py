"""20 Access keys of the HTTP broker."""

import logging
import re
from datetime import timedelta
from hashlib import sha256

import pytest
from django.core.management import call_command
from django.db import connection
from django.test.utils import CaptureQueriesContext

from django_mqlite.exceptions import AccessKeyExists, AccessKeyNotFound
from django_mqlite.models import AccessKey

pytestmark = pytest.mark.django_db


@pytest.fixture
def created(clock, db):
    """A key that may send to orders, and its secret."""
    return AccessKey.objects.create_key("shop", send=["orders*"])


def authenticated(secret):
    return AccessKey.objects.authenticate(secret)


def every_value():
    """Return every value in the database as text."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        tables = [name for (name,) in cursor.fetchall()]
        for table in tables:
            cursor.execute(f'SELECT * FROM "{table}"')
            yield from (str(value) for row in cursor.fetchall() for value in row)


# 20.1


@pytest.mark.rule("20.1")
def test_secret_is_returned_once_and_its_digest_is_stored(created):
    key, secret = created

    assert re.fullmatch(r"mqk_[0-9a-f]{64}", secret)
    assert AccessKey.objects.get().digest == sha256(secret.encode()).hexdigest()
    assert [value for value in every_value() if secret[4:] in value] == []
    assert str(key) == "shop"


@pytest.mark.rule("20.1")
def test_each_key_has_another_secret(created):
    _, other = AccessKey.objects.create_key("other", listen=["orders"])

    assert other != created.secret


@pytest.mark.rule("20.1")
@pytest.mark.parametrize(
    ("name", "options", "error", "text"),
    [
        ("a b", {"send": ["*"]}, ValueError, "Invalid access key name 'a b'"),
        ("", {"send": ["*"]}, ValueError, "Invalid access key name ''"),
        ("k", {}, ValueError, "Access key 'k' needs a right"),
        ("k", {"send": [], "manage": ()}, ValueError, "Access key 'k' needs a right"),
        ("k", {"send": "orders"}, TypeError, "send must be a sequence of patterns"),
        ("k", {"listen": 5}, TypeError, "listen must be a sequence of patterns"),
        ("k", {"listen": ["a b"]}, ValueError, "Invalid pattern 'a b' of listen"),
        ("k", {"manage": [""]}, ValueError, "Invalid pattern '' of manage"),
        ("k", {"manage": [None]}, ValueError, "Invalid pattern None of manage"),
        ("k", {"send": ["*"], "expires_in": 0}, ValueError, "expires_in must be at least 0.001 s"),
        ("k", {"send": ["*"], "expires_in": "90d"}, TypeError, "expires_in must be a timedelta"),
    ],
)
def test_invalid_key_is_refused_by_name(name, options, error, text, clock):
    with pytest.raises(error, match=re.escape(text)):
        AccessKey.objects.create_key(name, **options)

    assert not AccessKey.objects.exists()


@pytest.mark.rule("20.1")
def test_name_of_a_key_is_used_once_even_after_its_revocation(created):
    created.key.revoke()

    with pytest.raises(AccessKeyExists, match="access key 'shop' already"):
        AccessKey.objects.create_key("shop", send=["*"])

    assert authenticated(created.secret) is None


@pytest.mark.rule("20.1")
def test_keys_change_only_by_their_verbs(created):
    with pytest.raises(TypeError, match=r"create_key\(\)"):
        AccessKey.objects.create(name="k", digest="0" * 64)
    with pytest.raises(TypeError, match=r"create_key\(\), which sets it once"):
        AccessKey.objects.update(rights={"manage": ["*"]})
    with pytest.raises(TypeError, match=r"revoke\(\) of the access key"):
        AccessKey.objects.update(revoked_at=None)


# 20.2


@pytest.mark.rule("20.2")
@pytest.mark.parametrize(
    ("patterns", "name", "allowed"),
    [
        (["orders"], "orders", True),
        (["orders"], "orders-2", False),
        (["orders"], "Orders", False),
        (["orders*"], "orders", True),
        (["orders*"], "orders-2", True),
        (["orders*"], "my-orders", False),
        (["orders.?"], "orders.1", True),
        (["orders.?"], "orders.12", False),
        (["q[12]"], "q2", True),
        (["q[!12]"], "q2", False),
        (["a", "b"], "b", True),
        (["*"], "anything", True),
        (["*"], None, True),
        (["orders*"], None, False),
        (["a*", "?*"], None, False),
    ],
)
@pytest.mark.parametrize("right", ["send", "listen", "manage"])
def test_right_extends_to_the_names_that_its_patterns_match(clock, right, patterns, name, allowed):
    key, _ = AccessKey.objects.create_key("k", **{right: patterns})
    others = {"send", "listen", "manage"} - {right}

    assert key.allows(right, name) is allowed
    assert not any(key.allows(other, name) for other in others)


@pytest.mark.rule("20.2")
def test_unknown_right_is_an_error(created):
    with pytest.raises(ValueError, match="right must be one of send, listen, manage, not 'admin'"):
        created.key.allows("admin", "orders")


@pytest.mark.rule("20.2")
@pytest.mark.parametrize("rights", ["[]", "{", '{"send": "*"}', '{"send": [1, null]}', "null"])
def test_damaged_rights_allow_nothing(created, rights):
    with connection.cursor() as cursor:
        cursor.execute("UPDATE mqlite_access_keys SET rights = %s", [rights])

    assert not AccessKey.objects.get().allows("send", "*")


# 20.3


@pytest.mark.rule("20.3")
def test_key_is_found_by_its_secret_at_once(created):
    assert authenticated(created.secret) == created.key


@pytest.mark.rule("20.3")
@pytest.mark.parametrize(
    "secret", ["", "mqk_", "mqk_" + "0" * 64, "mqk_" + "0" * 32, "shop", "\ud800", "ключ", "a\0b"]
)
def test_wrong_secret_finds_no_key(created, secret):
    assert authenticated(secret) is None


@pytest.mark.rule("20.3")
def test_secret_in_another_notation_or_its_digest_finds_no_key(created):
    key, secret = created

    for other in (secret.upper(), secret[:-1], secret + "0", secret + "\n", f"mqk_{key.digest}"):
        assert authenticated(other) is None


@pytest.mark.rule("20.3")
def test_secret_of_another_type_is_an_error_without_the_secret():
    with pytest.raises(TypeError, match=r"secret must be a str, not bytes$"):
        authenticated(b"mqk_1")


@pytest.mark.rule("20.3")
def test_key_expires_at_its_time(clock):
    _, secret = AccessKey.objects.create_key("k", send=["*"], expires_in=timedelta(days=90))

    clock.advance(90 * 86_400 - 0.001)
    assert authenticated(secret).status == "valid"
    clock.advance(0.001)

    assert authenticated(secret) is None
    assert AccessKey.objects.get().status == "expired"


@pytest.mark.rule("20.3")
def test_revocation_takes_effect_within_five_seconds(created, clock):
    assert authenticated(created.secret)

    assert AccessKey.objects.revoke("shop")
    clock.advance(5)

    assert authenticated(created.secret) is None
    assert AccessKey.objects.get().status == "revoked"


@pytest.mark.rule("20.3")
def test_revocation_takes_effect_after_a_step_of_the_clock(created, clock):
    authenticated(created.secret)

    created.key.revoke()
    clock.advance(-3_600)

    assert authenticated(created.secret) is None


@pytest.mark.rule("20.3")
def test_key_is_read_at_most_every_two_seconds(created, clock):
    authenticated(created.secret)

    with CaptureQueriesContext(connection) as queries:
        clock.advance(1.999)
        authenticated(created.secret)
        assert len(queries) == 0
        clock.advance(0.001)
        authenticated(created.secret)

    assert len(queries) == 1


@pytest.mark.rule("20.3")
def test_text_that_cannot_be_a_secret_is_not_looked_up(created, django_assert_num_queries):
    with django_assert_num_queries(0):
        authenticated("mqk_" + "0" * 32)


@pytest.mark.rule("20.3")
def test_revoking_twice_returns_false(created):
    assert created.key.revoke()
    assert not created.key.revoke()


@pytest.mark.rule("20.3")
def test_revoking_an_unknown_key_is_refused_with_a_suggestion(created):
    with pytest.raises(AccessKeyNotFound, match="Did you mean 'shop'"):
        AccessKey.objects.revoke("shp")


# 20.4


@pytest.mark.rule("20.4")
def test_use_is_recorded_at_most_once_a_minute(created, clock):
    def last_used():
        return AccessKey.objects.get().last_used_at

    assert last_used() is None
    authenticated(created.secret)
    first = last_used()
    clock.advance(59)
    authenticated(created.secret)
    assert last_used() == first
    clock.advance(1)
    authenticated(created.secret)

    assert last_used() - first == timedelta(seconds=60)


@pytest.mark.rule("20.4")
def test_use_that_another_process_recorded_is_not_recorded_again(created, clock):
    key = AccessKey.objects.find_key(created.secret)
    with connection.cursor() as cursor:
        cursor.execute("UPDATE mqlite_access_keys SET last_used_at = %s", [clock.now_ms() - 1])

    AccessKey.objects.record_use(key)
    clock.advance(3)

    assert AccessKey.objects.get().last_used_at < key.last_used_at


@pytest.mark.rule("20.4")
def test_database_that_cannot_be_written_refuses_no_key(created, caplog):
    with connection.cursor() as cursor:
        cursor.execute("PRAGMA query_only = 1")
        try:
            assert authenticated(created.secret) == created.key
        finally:
            cursor.execute("PRAGMA query_only = 0")

    assert "the use of access key shop was not recorded" in caplog.text


# 20.5


@pytest.mark.rule("20.5")
def test_secret_is_in_no_log_and_no_statement(clock, caplog):
    with caplog.at_level(logging.DEBUG), CaptureQueriesContext(connection) as queries:
        _, secret = AccessKey.objects.create_key("shop", send=["*"])
        authenticated(secret)
        AccessKey.objects.revoke("shop")

    assert queries.captured_queries
    assert secret[4:] not in caplog.text + str(queries.captured_queries)


@pytest.mark.rule("20.5")
def test_secret_is_in_no_dump(created, capsys):
    call_command("dumpdata", "django_mqlite")

    assert created.secret[4:] not in capsys.readouterr().out
