"""What every page here has in common: rows change through verbs, never through a form."""

from collections.abc import Sequence
from typing import Any

from django.contrib import admin
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.admin.views.main import PAGE_VAR, ChangeList
from django.core.exceptions import BadRequest, ValidationError
from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponse
from django.urls import reverse

from ..types import Page, clamped

LAST_PLACE = 10_000_000
"""Beyond it a number is a mistake, and OFFSET would walk for minutes or overflow."""


class UncountedChangeList(ChangeList):
    """A page of a list, made without counting the rows.

    The ids come first, and with them where the next page begins. Only then the rows: whole rows
    would go through the sorter, or be read to be left out.
    """

    model_admin: "ReadOnlyAdmin"

    def get_results(self, request: HttpRequest) -> None:
        self.place = request.GET.get(PAGE_VAR) or None
        try:
            found = self.model_admin.find(request, self.queryset, self.place)
        except ValueError as error:
            raise IncorrectLookupParameters from error
        self.next_place = found.next
        self.result_list: Any = self.model_admin.page_of(found.ids)
        # Equal, so that the templates speak of no total and offer no selection across pages.
        self.result_count = self.full_result_count = len(self.result_list)
        self.show_full_result_count = False
        self.show_admin_actions = True
        self.can_show_all = self.multi_page = False

    def get_ordering(self, request: HttpRequest, queryset: QuerySet[Any]) -> list[Any]:
        """Ours, whatever ?o= says: any other order sorts the whole table."""
        return list(self.model_admin.get_ordering(request))

    @property
    def first_page_url(self) -> str | None:
        """The link to the beginning, None there."""
        return self.get_query_string(remove=[PAGE_VAR]) if self.place else None

    @property
    def next_page_url(self) -> str | None:
        """The link to the page after, None on the last."""
        return self.get_query_string({PAGE_VAR: self.next_place}) if self.next_place else None


class ReadOnlyAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    """Lists and shows rows; adds, changes and deletes nothing."""

    class Media:
        css = {"all": ["django_mqlite/admin.css"]}

    list_per_page = 50
    show_full_result_count = False
    # The counts beside the filters would be one COUNT over the whole table per choice.
    # Django's links would offer an order that no index has.
    sortable_by = ()
    show_facets = admin.ShowFacets.NEVER

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """By its own permission alone: Django's would also accept one to change the rows."""
        return self.holds(request, f"view_{self.opts.model_name}")

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return UncountedChangeList

    def lookup_allowed(self, lookup: str, value: Any, request: HttpRequest | None = None) -> bool:
        """Only our own filters: ?lock_token__startswith=… would be an oracle for the token."""
        return lookup in {getattr(each, "parameter_name", None) for each in self.list_filter}

    def response_action(
        self, request: HttpRequest, queryset: QuerySet[Any], *args: Any, **options: Any
    ) -> HttpResponse | None:
        """Carry out an action; BadRequest for a selection that no list of ours has offered."""
        selected = request.POST.getlist(ACTION_CHECKBOX_NAME)
        try:
            numbers = [self.opts.pk.to_python(each) for each in selected]
        except ValidationError as error:
            raise BadRequest("the selection is not one of ours") from error
        if any(isinstance(number, int) and number != clamped(number) for number in numbers):
            raise BadRequest("the selection is not one of ours")
        return super().response_action(request, queryset, *args, **options)

    def find(self, request: HttpRequest, queryset: QuerySet[Any], place: str | None) -> Page:
        """The ids of the page that begins at `place`; ValueError where that is none."""
        start = int(place or 0)
        if not 0 <= start <= LAST_PLACE:
            raise ValueError(f"{place} is no place in a list")
        end = start + self.list_per_page
        ids = queryset.values_list("pk", flat=True)[start : end + 1]
        found = tuple(ids)
        is_last = len(found) <= self.list_per_page
        return Page(ids=found[: self.list_per_page], next=None if is_last else str(end))

    def page_of(self, ids: Sequence[Any]) -> list[Model]:
        """The rows of one page of the list, in the order of `ids`."""
        rows = self.get_page_queryset().in_bulk(ids)
        return [rows[id] for id in ids if id in rows]

    def get_page_queryset(self) -> Any:
        """What the rows of a page are read from: the columns that the list shows."""
        return self.model.objects.all()

    def address(self, name: str, *arguments: Any) -> str:
        """The address of a page of this model, within the admin site that it is registered on."""
        view = f"admin:{self.opts.app_label}_{self.opts.model_name}_{name}"
        return reverse(view, args=arguments, current_app=self.admin_site.name)

    def holds(self, request: HttpRequest, codename: str) -> bool:
        """Whether this person has our permission of that name."""
        return request.user.has_perm(f"{self.opts.app_label}.{codename}")
