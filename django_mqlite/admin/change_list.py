"""A list over a table of any size."""

from typing import TYPE_CHECKING, Any

from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.admin.views.main import PAGE_VAR, ChangeList
from django.db.models import QuerySet
from django.http import HttpRequest

if TYPE_CHECKING:
    from .read_only import ReadOnlyAdmin


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
