"""Dead letters: why each died; back to work or gone for good, several at once."""

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.utils.translation import gettext_lazy as _

from ..models import DeadLetter
from .bulk import PURGE, REDRIVE, carry_out_or_ask
from .filters import QueueFilter
from .message_page import MessagePage, shortened

LISTED = (
    "id", "queue", "subject", "dead_letter_reason", "dead_letter_description", "delivery_count",
    "finished_at",
)  # fmt: skip


class DeadLetterAdmin(MessagePage):
    """The latest death first."""

    list_display = (
        "id", "queue", "short_subject", "dead_letter_reason", "short_description",
        "delivery_count", "short_error", "finished_at",
    )  # fmt: skip
    list_filter = (QueueFilter,)
    ordering = ("-finished_at", "-id")
    actions = ("redrive", "purge")

    def get_page_queryset(self) -> Any:
        return DeadLetter.objects.with_last_error().only(*LISTED)

    # Both permissions belong to Message: the proxy is a view of its rows, and whoever may redrive
    # may do so wherever the button is.
    def has_redrive_permission(self, request: HttpRequest) -> bool:
        return self._holds(request, "redrive_message")

    def has_purge_permission(self, request: HttpRequest) -> bool:
        return self._holds(request, "purge_message")

    @admin.action(description=_("Redrive: put back to work"), permissions=["redrive"])
    def redrive(self, request: HttpRequest, queryset: QuerySet[Any]) -> HttpResponseBase | None:
        return carry_out_or_ask(self, request, queryset, REDRIVE)

    @admin.action(description=_("Purge: delete for good"), permissions=["purge"])
    def purge(self, request: HttpRequest, queryset: QuerySet[Any]) -> HttpResponseBase | None:
        return carry_out_or_ask(self, request, queryset, PURGE)

    @admin.display(description=_("description"), empty_value="–")
    def short_description(self, letter: DeadLetter) -> str | None:
        return shortened(letter.dead_letter_description)

    @admin.display(description=_("last error"), empty_value="–")
    def short_error(self, letter: Any) -> str | None:
        return shortened(letter.last_error)
