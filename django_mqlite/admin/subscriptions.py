"""Subscriptions: which messages of a topic come into which queue."""

from typing import Any

from django.contrib import admin, messages
from django.db import OperationalError
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from ..exceptions import MqliteError
from ..models import Subscription
from .read_only import ReadOnlyAdmin
from .readable import shortened
from .subscription_form import SubscriptionForm

SAMPLE = [
    "sample_subject", "sample_properties", "sample_group_id", "sample_correlation_id",
    "sample_reply_to", "sample_message_id", "sample_body",
]  # fmt: skip


class SubscriptionAdmin(ReadOnlyAdmin):
    """Added, and given another filter; deleting one deletes its queue, so that is not here."""

    form = SubscriptionForm
    list_display = ("subscription", "topic", "short_filter", "created_at")
    ordering = ("topic", "subscription")
    search_fields = ("topic", "subscription")
    change_form_template = "admin/django_mqlite/subscription.html"

    def has_add_permission(self, request: HttpRequest) -> bool:
        return self.has_view_permission(request) and self.holds(request, "add_subscription")

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self.has_view_permission(request) and self.holds(request, "change_subscription")

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        return ["topic", "subscription", "created_at"] if obj else []

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> list[tuple[Any, Any]]:
        names = ["topic", "subscription", "filter"]
        fieldsets: list[tuple[Any, Any]] = [
            (None, {"fields": [*names, "created_at"] if obj else names})
        ]
        if self.has_change_permission(request) or (
            obj is None and self.has_add_permission(request)
        ):
            fieldsets.append((_("A sample to try the filter on"), {"fields": SAMPLE}))
        return fieldsets

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        Subscription.objects.subscribe(obj.topic, obj.subscription, filter=obj.filter)

    def construct_change_message(
        self, request: HttpRequest, form: Any, formsets: Any, add: bool = False
    ) -> Any:
        """What the filter is from now on; kept as it is, untranslated."""
        return f"Filter: {form.cleaned_data['filter'] or 'everything'}"

    def changeform_view(self, request: HttpRequest, *args: Any, **options: Any) -> HttpResponse:
        try:
            return super().changeform_view(request, *args, **options)
        except (MqliteError, OperationalError) as error:
            text = gettext("Nothing was changed: %(error)s") % {"error": error}
            self.message_user(request, text, messages.ERROR)
            return HttpResponseRedirect(request.get_full_path())

    @admin.display(description=_("filter"))
    def short_filter(self, subscription: Subscription) -> str:
        return shortened(subscription.filter) or gettext("everything")
