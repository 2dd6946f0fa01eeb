"""A project's admins that show a tenant its own queues, subscriptions, schedules and keys only."""

import re

import pytest
from django.contrib.admin import AdminSite
from django.contrib.auth.models import User
from django.contrib.messages.storage.cookie import CookieStorage
from django.core.exceptions import PermissionDenied
from django.test import RequestFactory

from django_mqlite import recurring
from django_mqlite.admin.keys import AccessKeyAdmin
from django_mqlite.admin.messages import MessageAdmin
from django_mqlite.admin.queues import QueueAdmin
from django_mqlite.admin.schedules import ScheduleAdmin
from django_mqlite.admin.subscriptions import SubscriptionAdmin
from django_mqlite.models import AccessKey, Message, Queue, Schedule, Subscription
from django_mqlite.verbs.workers import register
from django_mqlite.worker.dispatcher import Dispatcher
from tests.support.verbs import dead_letter, record

from .pages import selection
from .test_forms import OPTIONS

OWN, OTHER = "red-jobs", "blue-jobs"
ADMINS = {
    AccessKey: AccessKeyAdmin,
    Message: MessageAdmin,
    Queue: QueueAdmin,
    Schedule: ScheduleAdmin,
    Subscription: SubscriptionAdmin,
}


class OwnRows:
    """Lists the rows of the tenant `red` only."""

    def get_queryset(self, request):
        prefix = "schedule:red-" if self.model is Schedule else "red-"
        return super().get_queryset(request).filter(pk__startswith=prefix)


class OwnKeys(OwnRows):
    def get_queryset(self, request):
        return super(OwnRows, self).get_queryset(request).filter(name__startswith="red-")


class OwnViews:
    """Lists every row, but lets users view those of the tenant `red` only."""

    def has_view_permission(self, request, obj=None):
        name = str(getattr(obj, "name", None) or getattr(obj, "pk", "")).removeprefix("schedule:")
        is_own = obj is None or name.startswith("red-")
        return super().has_view_permission(request, obj) and is_own


class OwnChanges:
    """Lets users view every row, but change those of the tenant `red` only."""

    def has_change_permission(self, request, obj=None):
        is_own = obj is None or str(obj.pk).startswith("red-")
        return super().has_change_permission(request, obj) and is_own


def site_of(mixin):
    """Return the admin site of a project that restricts the rows."""
    site = AdminSite()
    for model, base in ADMINS.items():
        restriction = OwnKeys if (mixin, model) == (OwnRows, AccessKey) else mixin
        bases = (base,) if model is Message else (restriction, base)
        site.register(model, type(f"Own{base.__name__}", bases, {}))
    return site


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


@pytest.fixture(autouse=True)
def queues(clock, make_queue):
    for name in (OWN, OTHER):
        make_queue(name)
        dead_letter(name)
    register("default", record("own", queues=(OWN, OTHER)))
    register("default", record("other", queues=(OTHER,)))


both = pytest.mark.parametrize("mixin", [OwnRows, OwnViews])


def text_of(response):
    return response.render().content.decode()


def is_refused(view, *arguments):
    """Return True if the view refuses the request, or redirects because there is no such row."""
    try:
        response = view(*arguments)
    except PermissionDenied:
        return True
    return response.status_code == 302


@both
@pytest.mark.parametrize("view", ["changelist_view", "overview_tables"])
def test_overview_shows_own_queues_and_their_figures_only(make_request, mixin, view):
    page = text_of(getattr(site_of(mixin).get_model_admin(Queue), view)(make_request()))

    assert OWN in page
    assert OTHER not in page
    assert "1 dead letter in the last hour" in page
    assert re.findall(r'<th scope="row">(\w+)</th>', page) == ["own"]


@both
def test_page_of_another_queue_is_refused(make_request, mixin):
    admin = site_of(mixin).get_model_admin(Queue)

    assert OWN in text_of(admin.change_view(make_request(), OWN))
    assert is_refused(admin.change_view, make_request(), OTHER)
    assert is_refused(admin.change_view, make_request("post", **OPTIONS), OTHER)
    assert is_refused(admin.history_view, make_request(), OTHER)
    assert Queue.objects.get(name=OTHER).max_delivery_count == 10


@both
def test_another_queue_cannot_be_paused(make_request, mixin):
    admin = site_of(mixin).get_model_admin(Queue)

    for name in (OWN, OTHER):
        is_refused(admin.changelist_view, make_request("post", pause=name))

    assert list(Queue.objects.filter(paused=True).values_list("name", flat=True)) == [OWN]


def test_change_permission_of_one_queue_is_asked(make_request):
    admin = site_of(OwnChanges).get_model_admin(Queue)

    assert 'name="max_delivery_count"' in text_of(admin.change_view(make_request(), OWN))
    assert 'name="max_delivery_count"' not in text_of(admin.change_view(make_request(), OTHER))
    assert is_refused(admin.change_view, make_request("post", **OPTIONS), OTHER)
    assert Queue.objects.get(name=OTHER).max_delivery_count == 10


def test_pause_permission_of_one_queue_is_asked(make_request):
    class OwnPauses(QueueAdmin):
        def has_pause_permission(self, request, obj=None):
            return obj is None or obj.name == OWN

    admin = OwnPauses(Queue, AdminSite())

    page = text_of(admin.changelist_view(make_request()))
    assert re.findall('name="pause" value="([^"]*)"', page) == [OWN]
    with pytest.raises(PermissionDenied):
        admin.changelist_view(make_request("post", pause=OTHER))
    assert not Queue.objects.get(name=OTHER).paused


def test_filter_by_queue_offers_own_queues_only(make_request):
    page = text_of(site_of(OwnRows).get_model_admin(Message).changelist_view(make_request()))

    assert f"?queue={OWN}" in page
    assert f"?queue={OTHER}" not in page


@both
def test_subscription_of_another_tenant_is_refused(make_request, mixin):
    for name in ("red-stock", "blue-stock"):
        Subscription.objects.subscribe("orders", name)
    admin = site_of(mixin).get_model_admin(Subscription)

    assert "blue-stock" not in text_of(admin.changelist_view(make_request()))
    assert "red-stock" in text_of(admin.change_view(make_request(), "red-stock"))
    assert is_refused(admin.change_view, make_request(), "blue-stock")
    for method in ("get", "post"):
        request = make_request(method, filter="subject == 'x'")
        assert is_refused(admin.change_view, request, "blue-stock")
    assert set(Subscription.objects.values_list("filter", flat=True)) == {""}


@both
def test_schedule_of_another_tenant_is_refused(make_request, mixin, settings, monkeypatch, clock):
    monkeypatch.setattr(recurring, "_declared", {})
    every = {"every": 60, "queue": OWN}
    settings.MQLITE = {"SCHEDULES": {"red-tick": every, "blue-tick": every}}
    Dispatcher.of_project("default").poll()
    admin = site_of(mixin).get_model_admin(Schedule)

    page = text_of(admin.changelist_view(make_request()))
    Schedule.objects.pause("blue-tick")
    overview = text_of(site_of(mixin).get_model_admin(Queue).changelist_view(make_request()))
    Schedule.objects.resume("blue-tick")
    admin.changelist_view(make_request("post", schedule="red-tick", action="pause"))
    with pytest.raises(PermissionDenied):
        admin.changelist_view(make_request("post", schedule="blue-tick", action="pause"))

    assert "red-tick" in page
    assert "blue-tick" not in page
    assert "schedule is paused" not in overview
    assert [status.paused for status in Schedule.objects.statuses()] == [False, True]


@both
@pytest.mark.parametrize("across", [{}, {"select_across": "1"}])
def test_access_key_of_another_tenant_is_refused(make_request, mixin, across):
    for name in ("red-shop", "blue-shop"):
        AccessKey.objects.create_key(name, send=["*"])
    own, other = (AccessKey.objects.get(name=name) for name in ("red-shop", "blue-shop"))
    admin = site_of(mixin).get_model_admin(AccessKey)

    assert "blue-shop" not in text_of(admin.changelist_view(make_request()))
    assert is_refused(admin.change_view, make_request(), other.pk)
    admin.changelist_view(make_request("post", **selection("revoke", own, other), **across))

    statuses = {key.name: key.status for key in AccessKey.objects.all()}
    assert statuses == {"red-shop": "revoked", "blue-shop": "valid"}
