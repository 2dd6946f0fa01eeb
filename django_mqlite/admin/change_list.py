"""A list over a table of any size."""

from typing import TYPE_CHECKING, Any

from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.admin.views.main import PAGE_VAR, ChangeList
from django.db.models import QuerySet
from django.http import HttpRequest

if TYPE_CHECKING:
    from .read_only import ReadOnlyAdmin

LAST_PAGE = 1_000_000
"""Beyond it a page number is a mistake, and OFFSET would walk for minutes or overflow."""


class UncountedChangeList(ChangeList):
    """A page of a list, made without counting the rows.

    The ids come first, one more than the page shows, which says whether there is a next page. Only
    then the rows: where no index has the order, whole rows would go through the sorter.
    """

    model_admin: "ReadOnlyAdmin"

    def get_results(self, request: HttpRequest) -> None:
        if not 1 <= self.page_num <= LAST_PAGE:
            raise IncorrectLookupParameters
        start = (self.page_num - 1) * self.list_per_page
        ids = list(
            self.queryset.values_list("pk", flat=True)[start : start + self.list_per_page + 1]
        )
        self.has_next_page = len(ids) > self.list_per_page
        self.result_list: Any = self.model_admin.page_of(ids[: self.list_per_page])
        # Equal, so that the templates speak of no total and offer no selection across pages.
        self.result_count = self.full_result_count = len(self.result_list)
        self.show_full_result_count = False
        self.show_admin_actions = True
        self.can_show_all = self.multi_page = False

    def get_ordering(self, request: HttpRequest, queryset: QuerySet[Any]) -> list[Any]:
        """Ours, whatever ?o= says: any other order sorts the whole table."""
        return list(self.model_admin.get_ordering(request))

    @property
    def previous_page_url(self) -> str | None:
        """The link to the page before, None on the first."""
        return self._page_url(self.page_num - 1) if self.page_num > 1 else None

    @property
    def next_page_url(self) -> str | None:
        """The link to the page after, None on the last."""
        return self._page_url(self.page_num + 1) if self.has_next_page else None

    def _page_url(self, number: int) -> str:
        return self.get_query_string({PAGE_VAR: number})
