"""Queues: how deep, how quick, paused or not, and who works on them."""

from typing import Any

from django.contrib import admin, messages
from django.contrib.admin.models import CHANGE
from django.core.exceptions import PermissionDenied
from django.db import OperationalError
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern, path
from django.utils.translation import gettext, ngettext
from django.utils.translation import gettext_lazy as _

from ..models import Queue
from ..transactions import write_transaction
from .log import log
from .overview import overview
from .queue_page import QueuePage


class QueueAdmin(QueuePage):
    """The overview in place of a list: every queue at a glance, refreshed while it is looked at."""

    ordering = ("name",)
    actions = ("pause", "resume")

    def get_urls(self) -> list[URLPattern]:
        part = self.admin_site.admin_view(self.overview_part)
        return [path("overview/", part, name="django_mqlite_queue_overview"), *super().get_urls()]

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """The overview. A POST is one of its buttons, which are Django's actions."""
        if request.method == "POST":
            return super().changelist_view(request, extra_context)
        context = {
            **self.admin_site.each_context(request),
            **self._overview(request),
            "title": _("Overview of the queues"),
            "opts": self.opts,
            "media": self.media,
            **(extra_context or {}),
        }
        return TemplateResponse(request, "admin/django_mqlite/overview.html", context)

    def overview_part(self, request: HttpRequest) -> HttpResponse:
        """The tables alone, which the overview fetches every few seconds."""
        context = self._overview(request)
        return TemplateResponse(request, "admin/django_mqlite/overview_tables.html", context)

    def _overview(self, request: HttpRequest) -> dict[str, Any]:
        if not self.has_view_permission(request):
            raise PermissionDenied
        request.current_app = self.admin_site.name
        return {
            **overview(),
            "can_pause": self.has_pause_permission(request),
            "can_view_messages": self.holds(request, "view_message"),
        }

    def has_pause_permission(self, request: HttpRequest) -> bool:
        return self.holds(request, "pause_queue")

    @admin.action(description=_("Pause: nobody can claim"), permissions=["pause"])
    def pause(self, request: HttpRequest, queryset: QuerySet[Queue]) -> None:
        self._set_paused(request, queryset, paused=True)

    @admin.action(description=_("Resume: claims go on"), permissions=["pause"])
    def resume(self, request: HttpRequest, queryset: QuerySet[Queue]) -> None:
        self._set_paused(request, queryset, paused=False)

    def _set_paused(self, request: HttpRequest, queues: QuerySet[Queue], *, paused: bool) -> None:
        """The change and its log entries are one transaction."""
        try:
            with write_transaction(Queue.objects.database):
                changed = [queue for queue in queues if Queue.objects.set_paused(queue, paused)]
                log(request, changed, CHANGE, "Paused." if paused else "Resumed.")
        except OperationalError as error:
            text = gettext("Nothing was changed: %(error)s")
            self.message_user(request, text % {"error": error}, messages.ERROR)
        else:
            self.message_user(request, _said(len(changed), paused=paused), messages.SUCCESS)


def _said(count: int, *, paused: bool) -> str:
    if paused:
        text = ngettext("%(count)d queue was paused.", "%(count)d queues were paused.", count)
    else:
        text = ngettext("%(count)d queue was resumed.", "%(count)d queues were resumed.", count)
    return text % {"count": count}
