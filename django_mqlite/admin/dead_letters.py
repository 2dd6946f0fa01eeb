"""Dead letters: why each died; back to work or gone for good, several at once."""

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.translation import gettext_lazy as _

from ..models import DeadLetter
from ..types import State
from .bulk import carry_out_or_ask
from .bulk_verbs import PURGE, REDRIVE
from .filters import GroupFilter, QueueFilter, ReasonFilter
from .message_page import MessagePage
from .readable import shortened

LISTED = (
    "id", "queue", "subject", "group_id", "dead_letter_reason", "dead_letter_description",
    "delivery_count", "finished_at",
)  # fmt: skip


class DeadLetterAdmin(MessagePage):
    """The latest death first."""

    list_display = (
        "id", "queue", "short_subject", "group_id", "dead_letter_reason", "error",
        "delivery_count", "finished_at",
    )  # fmt: skip
    always = {"state": State.DEAD_LETTERED}
    list_filter = (QueueFilter, ReasonFilter, GroupFilter)
    ordering = ("-finished_at", "-id")
    actions = ("redrive", "purge")
    change_list_template = "admin/django_mqlite/dead_letters.html"

    def get_page_queryset(self) -> Any:
        return DeadLetter.objects.with_last_error().only(*LISTED)

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """The list, with a button for each verb that takes everything the filter lets through."""
        offered = self.get_actions(request)
        verbs = [verb for verb in (REDRIVE, PURGE) if verb.action in offered]
        context = {"verbs_for_all": verbs, **(extra_context or {})}
        return super().changelist_view(request, context)

    def history_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """That of the message: a letter is logged under the name that it keeps."""
        view = "admin:django_mqlite_message_history"
        return redirect(reverse(view, args=[object_id], current_app=self.admin_site.name))

    # Both permissions belong to Message: the proxy is a view of its rows, and whoever may redrive
    # may do so wherever the button is.
    def has_redrive_permission(self, request: HttpRequest) -> bool:
        return self.holds(request, "redrive_message")

    def has_purge_permission(self, request: HttpRequest) -> bool:
        return self.holds(request, "purge_message")

    @admin.action(description=_("Redrive: put back to work"), permissions=["redrive"])
    def redrive(self, request: HttpRequest, queryset: QuerySet[Any]) -> HttpResponseBase | None:
        return carry_out_or_ask(self, request, queryset, REDRIVE)

    @admin.action(description=_("Purge: delete for good"), permissions=["purge"])
    def purge(self, request: HttpRequest, queryset: QuerySet[Any]) -> HttpResponseBase | None:
        return carry_out_or_ask(self, request, queryset, PURGE)

    @admin.display(description=_("error"), empty_value="–")
    def error(self, letter: Any) -> str | None:
        """What it died of in words, and the last error where that says something else."""
        said = dict.fromkeys(filter(None, (letter.dead_letter_description, letter.last_error)))
        return " – ".join(filter(None, map(shortened, said))) or None
