"""What every page here has in common: rows change through verbs, never through a form."""

from collections.abc import Sequence
from typing import Any

from django.contrib import admin
from django.contrib.admin.views.main import ChangeList
from django.db.models import Model
from django.http import HttpRequest

from .change_list import UncountedChangeList


class ReadOnlyAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    """Lists and shows rows; adds, changes and deletes nothing."""

    list_per_page = 50
    show_full_result_count = False
    # The counts beside the filters would be one COUNT over the whole table per choice.
    show_facets = admin.ShowFacets.NEVER

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """By its own permission alone: Django's would also accept one to change the rows."""
        return self._holds(request, f"view_{self.opts.model_name}")

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return UncountedChangeList

    def lookup_allowed(self, lookup: str, value: Any, request: HttpRequest | None = None) -> bool:
        """Only our own filters: ?lock_token__startswith=… would be an oracle for the token."""
        return lookup in {getattr(each, "parameter_name", None) for each in self.list_filter}

    def page_of(self, ids: Sequence[Any]) -> list[Model]:
        """The rows of one page of the list, in the order of `ids`."""
        rows = self.get_page_queryset().in_bulk(ids)
        return [rows[id] for id in ids if id in rows]

    def get_page_queryset(self) -> Any:
        """What the rows of a page are read from: the columns that the list shows."""
        return self.model.objects.all()

    def _holds(self, request: HttpRequest, codename: str) -> bool:
        return request.user.has_perm(f"{self.opts.app_label}.{codename}")
