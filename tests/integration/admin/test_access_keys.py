"""The pages of access keys: creating shows the secret once, and no page shows the digest."""

import re

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.messages import get_messages
from django.contrib.sessions.models import Session
from django.urls import reverse

from django_mqlite.models import AccessKey

from .pages import read_only, selection, text_of, without_csrf_token

LIST = reverse("admin:django_mqlite_accesskey_changelist")
ADD = reverse("admin:django_mqlite_accesskey_add")
FORM = {"name": "shop", "send": "orders*, a", "listen": "emails", "manage": "", "days": "90"}
SECRET = re.compile(r"mqk_[0-9a-f]{64}")

pytestmark = pytest.mark.usefixtures("clock")


def page_of(key):
    return reverse("admin:django_mqlite_accesskey_change", args=[key.pk])


@pytest.fixture
def editor(make_staff):
    return make_staff("view_accesskey", "add_accesskey", "revoke_accesskey")


@pytest.fixture
def key(db):
    return AccessKey.objects.create_key("shop", send=["orders*"]).key


def test_created_key_is_shown_with_its_secret(editor):
    response = editor.post(ADD, FORM)

    (secret,) = SECRET.findall(text_of(response))
    key = AccessKey.objects.authenticate(secret)
    assert key.rights == {"send": ["orders*", "a"], "listen": ["emails"]}
    assert key.expires_at.isoformat() == "2026-04-01T00:00:00+00:00"
    assert key.digest not in text_of(response)
    assert "no-store" in response["Cache-Control"]


def test_secret_is_nowhere_after_the_answer(editor):
    response = editor.post(ADD, FORM)

    (secret,) = SECRET.findall(text_of(response))
    (entry,) = LogEntry.objects.all()
    stored = [session.get_decoded() for session in Session.objects.all()]
    assert list(get_messages(response.wsgi_request)) == []
    assert secret not in f"{stored} {response.cookies} {vars(entry)}"
    assert entry.change_message == "send: orders*, a; listen: emails; manage: "
    for url in (LIST, page_of(AccessKey.objects.get())):
        page = text_of(editor.get(url))
        assert secret not in page
        assert AccessKey.objects.get().digest not in page


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"name": "a b"}, "Invalid access key name &#x27;a b&#x27;"),
        ({"send": "a/b"}, "Invalid pattern &#x27;a/b&#x27; of send"),
        ({"send": "", "listen": ""}, "A key needs at least one right."),
        ({"days": "0"}, "greater than or equal to 1"),
    ],
)
def test_invalid_form_creates_no_key(editor, fields, text):
    page = text_of(editor.post(ADD, FORM | fields))

    assert text in page
    assert not SECRET.search(page)
    assert not AccessKey.objects.exists()


def test_taken_name_is_refused_by_the_form(editor, key):
    page = text_of(editor.post(ADD, FORM))

    assert "Access key with this Name already exists." in page
    assert AccessKey.objects.count() == 1


def test_selected_keys_are_revoked(editor, key):
    response = editor.post(LIST, selection("revoke", key), follow=True)

    assert "1 access key revoked." in text_of(response)
    assert AccessKey.objects.get().status == "revoked"
    (entry,) = LogEntry.objects.all()
    assert (entry.object_id, entry.change_message) == ("shop", "Revoked.")
    again = editor.post(LIST, selection("revoke", key), follow=True)
    assert "0 access keys revoked." in text_of(again)


def test_list_and_page_show_rights_and_status(editor, key):
    for url in (LIST, page_of(key)):
        page = text_of(editor.get(url))
        assert "orders*" in page
        assert "valid" in page


def test_key_cannot_be_changed_or_deleted(admin_client, key, caplog):
    for page in (page_of(key), reverse("admin:django_mqlite_accesskey_delete", args=[key.pk])):
        assert admin_client.post(page, FORM | {"post": "yes"}).status_code == 403

    assert AccessKey.objects.get().rights == key.rights


@pytest.mark.parametrize(
    ("permissions", "url", "fields", "status"),
    [
        (["add_accesskey"], ADD, FORM, 403),
        (["view_accesskey"], ADD, FORM, 403),
        (["add_accesskey", "revoke_accesskey"], LIST, None, 403),
        (["view_accesskey", "add_accesskey"], LIST, "revoke", 200),
    ],
)
def test_each_action_needs_its_permission(
    make_staff, key, permissions, url, fields, status, caplog
):
    client = make_staff(*permissions)
    fields = selection("revoke", key) if fields == "revoke" else fields

    response = client.post(url, fields) if fields else client.get(url)

    assert response.status_code == status
    assert AccessKey.objects.get().status == "valid"


def test_request_without_csrf_token_is_refused(editor, caplog):
    assert without_csrf_token(editor).post(ADD, FORM).status_code == 403

    assert not AccessKey.objects.exists()


def test_read_only_database_is_reported(editor, key):
    with read_only():
        created = editor.post(ADD, FORM | {"name": "other"})
        revoked = editor.post(LIST, selection("revoke", key))

    assert "Nothing was changed" in text_of(created)
    assert revoked.status_code == 302
    assert AccessKey.objects.get().status == "valid"


def test_pages_are_read_without_a_write(editor, key):
    with read_only():
        for url in (LIST, ADD, page_of(key)):
            text_of(editor.get(url))


def test_digest_is_no_filter(editor, key, caplog):
    assert editor.get(LIST, {"digest__startswith": key.digest[:1]}).status_code in (302, 400)
