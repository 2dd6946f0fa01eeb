"""A project's admin that restricts the rows: get_queryset() and has_view_permission(obj)."""

from contextlib import suppress

import pytest
from django.contrib.admin import AdminSite
from django.contrib.auth.models import User
from django.contrib.messages.storage.cookie import CookieStorage
from django.core.exceptions import PermissionDenied
from django.http import Http404
from django.test import RequestFactory

from django_mqlite.admin.dead_letters import DeadLetterAdmin
from django_mqlite.admin.messages import MessageAdmin
from django_mqlite.admin.queues import QueueAdmin
from django_mqlite.models import DeadLetter, Message, Queue
from tests.support.verbs import dead_letter, state_of

from .pages import confirmation, listed, selection


class OwnQueue:
    """Shows the queue `jobs` only, as for one tenant."""

    def get_queryset(self, request):
        return super().get_queryset(request).filter(queue="jobs")


class OwnMessages:
    """Lists every row, but lets users view those of the queue `jobs` only."""

    def has_view_permission(self, request, obj=None):
        return super().has_view_permission(request, obj) and (obj is None or obj.queue == "jobs")


def admins(mixin):
    """Return the admins of messages and dead letters of a project that restricts them."""
    site = AdminSite()
    restricted = {
        model: type(f"Own{base.__name__}", (mixin, base), {})
        for model, base in ((Message, MessageAdmin), (DeadLetter, DeadLetterAdmin))
    }
    for model, admin in restricted.items():
        site.register(model, admin)
    return {model: site.get_model_admin(model) for model in restricted}


@pytest.fixture
def make_request(db):
    user = User.objects.create_superuser("boss")

    def make(method="get", **data):
        request = getattr(RequestFactory(), method)("/", data)
        request.user = user
        request._dont_enforce_csrf_checks = True
        request._messages = CookieStorage(request)
        return request

    return make


@pytest.fixture
def letters(queue, make_queue):
    """A dead letter of the own queue, and one of another."""
    make_queue("others")
    return dead_letter("jobs"), dead_letter("others")


both = pytest.mark.parametrize("mixin", [OwnQueue, OwnMessages])


@both
@pytest.mark.parametrize("query", [{}, {"queue": "others"}, {"q": "2"}, {"state": "dead_lettered"}])
@pytest.mark.parametrize("model", [Message, DeadLetter])
def test_list_has_only_rows_that_the_user_may_view(make_request, letters, mixin, query, model):
    _own, other = letters
    query = {name: value for name, value in query.items() if model is Message or name != "state"}

    response = admins(mixin)[model].changelist_view(make_request(**query))

    assert other.pk not in listed(response.render())


def test_counts_of_errors_are_left_out_of_a_restricted_list(make_request, letters):
    admin = admins(OwnQueue)[DeadLetter]

    assert "× Broken" not in admin.changelist_view(make_request()).render().content.decode()


@both
@pytest.mark.parametrize("model", [Message, DeadLetter])
def test_page_and_body_of_another_row_are_refused(make_request, letters, mixin, model):
    own, other = letters
    admin = admins(mixin)[model]

    assert admin.body(make_request(), own.pk).status_code == 200
    with pytest.raises((PermissionDenied, Http404)):
        admin.body(make_request(), other.pk)
    try:
        response = admin.change_view(make_request(), str(other.pk)).render()
    except PermissionDenied:
        return
    assert "is not among the messages that you may view" in response.content.decode()
    assert "Broken" not in response.content.decode()


@both
@pytest.mark.parametrize("action", ["redrive", "purge"])
def test_action_on_another_row_is_refused(make_request, letters, mixin, action):
    _own, other = letters

    for admin in admins(mixin).values():
        request = make_request("post", confirmed="yes")
        with suppress(PermissionDenied):
            admin.act(request, other.pk, action)
        assert state_of(other) == "dead_lettered"


@both
@pytest.mark.parametrize("across", [{}, {"select_across": "1"}])
def test_bulk_action_leaves_other_rows_alone(make_request, letters, mixin, across):
    own, other = letters

    for admin in admins(mixin).values():
        fields = selection("purge", own, other) | confirmation(2) | across
        admin.changelist_view(make_request("post", **fields))

    assert state_of(other) == "dead_lettered"


class OwnQueues(QueueAdmin):
    """Shows the queue `jobs` only."""

    def get_queryset(self, request):
        return super().get_queryset(request).filter(name="jobs")


def test_redrive_into_a_queue_that_the_user_may_not_view_is_refused(make_request, letters):
    own, _other = letters
    admin = admins(OwnQueue)[DeadLetter]
    admin.admin_site.register(Queue, OwnQueues)
    fields = selection("redrive", own) | confirmation(1) | {"into": "others"}

    response = admin.changelist_view(make_request("post", **fields)).render()

    assert ">others<" not in response.content.decode()
    assert DeadLetter.objects.get(pk=own.pk).queue == "jobs"
