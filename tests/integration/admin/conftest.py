"""Staff users with given permissions."""

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client

VIEW = ("view_queue", "view_message", "view_deadletter", "view_subscription", "view_body")
PERMISSIONS = {
    "redrive": "redrive_message",
    "purge": "purge_message",
    "release": "release_message",
    "run_now": "change_message",
    "cancel": "delete_message",
    "activate": "change_message",
    "discard": "discard_message",
    "pause": "pause_queue",
}


@pytest.fixture
def make_staff(db):
    """Log in a staff user who has only these permissions of the app."""

    def make(*codenames: str) -> Client:
        user = User.objects.create_user(f"staff {User.objects.count()}", is_staff=True)
        own = Permission.objects.filter(content_type__app_label="django_mqlite")
        user.user_permissions.set(own.filter(codename__in=codenames))
        client = Client()
        client.force_login(user)
        return client

    return make


@pytest.fixture
def viewer(make_staff):
    return make_staff(*VIEW)


@pytest.fixture
def operator(make_staff):
    """A user with the permissions of all actions."""
    return make_staff(*VIEW, *PERMISSIONS.values())
