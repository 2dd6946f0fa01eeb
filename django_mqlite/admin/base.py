"""Base of the admin pages: lists without counts, filters, permissions and the admin log."""

from collections.abc import Iterator, Sequence
from typing import Any, cast

import django
from django.contrib import admin
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.models import LogEntry
from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.admin.views.main import PAGE_VAR, ChangeList
from django.core.exceptions import BadRequest, ValidationError
from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.text import format_lazy
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from ..formatting import STATES
from ..models import Queue
from ..task_facts import STATUSES
from ..types import Page, State, clamped

MAX_OFFSET = 10_000_000
"""The largest accepted offset, because a larger one would take minutes or overflow."""


class UncountedChangeList(ChangeList):
    """One page of a list, read without counting the rows.

    The ids of the page are read first, then the rows: a query for whole rows would sort them, or
    read many only to skip them.
    """

    model_admin: "BaseAdmin"

    def get_results(self, request: HttpRequest) -> None:
        self.position = request.GET.get(PAGE_VAR) or None
        try:
            page = self.model_admin.find(request, self.queryset, self.position)
        except ValueError as error:
            raise IncorrectLookupParameters from error
        self.next_position = page.next
        self.searched = page.searched
        self.result_list: Any = self.model_admin.rows_of(request, page.ids)
        # Equal counts keep the templates from showing a total or a selection across pages.
        self.result_count = self.full_result_count = len(self.result_list)
        self.show_full_result_count = False
        self.show_admin_actions = True
        self.can_show_all = self.multi_page = False

    def get_ordering(self, request: HttpRequest, queryset: QuerySet[Any]) -> list[Any]:
        """Ignore ?o=: any other order would sort the whole table."""
        return list(self.model_admin.get_ordering(request))

    @property
    def first_page_url(self) -> str | None:
        """The URL of the first page, or None on the first page."""
        return self.get_query_string(remove=[PAGE_VAR]) if self.position else None

    @property
    def next_page_url(self) -> str | None:
        """The URL of the next page, or None on the last page."""
        next_position = self.next_position
        return self.get_query_string({PAGE_VAR: next_position}) if next_position else None


class BaseAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    """Read-only pages: rows change only through the verbs of the managers."""

    class Media:
        css = {"all": ["django_mqlite/admin.css"]}

    list_per_page = 50
    show_full_result_count = False
    # Facets would count the whole table once for each choice of a filter, and no index serves the
    # orders that Django's column headers would offer.
    sortable_by = ()
    show_facets = admin.ShowFacets.NEVER
    reported_errors: tuple[type[Exception], ...] = ()
    """Errors from saving a form that are reported to the user instead of being raised."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Require the view permission; Django would also accept the change permission."""
        return self.holds(request, f"view_{self.opts.model_name}")

    def holds(self, request: HttpRequest, codename: str) -> bool:
        """Return True if the user has this permission of the app."""
        return request.user.has_perm(f"{self.opts.app_label}.{codename}")

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return UncountedChangeList

    def lookup_allowed(self, lookup: str, value: Any, request: HttpRequest | None = None) -> bool:
        """Allow only the filters of the list: ?lock_token__startswith=… would reveal the token."""
        filters = self.list_filter if request is None else self.get_list_filter(request)
        return lookup in {getattr(filter, "parameter_name", None) for filter in filters}

    def response_action(
        self, request: HttpRequest, queryset: QuerySet[Any], *args: Any, **options: Any
    ) -> HttpResponse | None:
        """Run an action; raise BadRequest for ids that no list contains."""
        try:
            keys = [
                self.opts.pk.to_python(key) for key in request.POST.getlist(ACTION_CHECKBOX_NAME)
            ]
        except ValidationError as error:
            raise BadRequest("invalid selection") from error
        if any(isinstance(key, int) and key != clamped(key) for key in keys):
            raise BadRequest("invalid selection")
        return super().response_action(request, queryset, *args, **options)

    def changeform_view(self, request: HttpRequest, *args: Any, **options: Any) -> HttpResponse:
        """Show the form again with what was typed if saving it raises one of `reported_errors`."""
        try:
            return super().changeform_view(request, *args, **options)
        except self.reported_errors as error:
            if request.method != "POST":
                raise
            request.mqlite_error = error  # type: ignore[attr-defined]
            return super().changeform_view(request, *args, **options)

    def get_form(self, request: HttpRequest, *args: Any, **options: Any) -> Any:
        """Return the form, which is invalid if saving it has just raised an error."""
        form_class = super().get_form(request, *args, **options)
        if not hasattr(request, "mqlite_error"):
            return form_class
        error: Exception = request.mqlite_error
        field_of = self.field_of

        class RefusedForm(form_class):  # type: ignore[misc, valid-type]
            def clean(self) -> Any:
                cleaned = super().clean()
                field = field_of(error)
                self.add_error(field if field in self.fields else None, nothing_changed(error))
                return cleaned

        return RefusedForm

    def field_of(self, error: Exception) -> str | None:
        """Return the name of the form field that caused one of `reported_errors`, or None."""
        return None

    def every_row(self) -> QuerySet[Any]:
        """Return the rows that get_queryset() returns unless the project restricts them."""
        rows: QuerySet[Any] = self.model.objects.all()
        return rows

    def is_restricted(self, request: HttpRequest) -> bool:
        """Return whether the project's get_queryset() leaves out rows, such as other tenants'."""
        shown: Any = self.get_queryset(request).query.where
        return bool(shown != self.every_row().query.where)

    def queue_names(self, request: HttpRequest) -> list[str]:
        """Return the names of the queues that the site's admin of queues shows to the user."""
        queues: QuerySet[Queue] = Queue.objects.all()
        if self.admin_site.is_registered(Queue):
            queues = self.admin_site.get_model_admin(Queue).get_queryset(request)
        return list(queues.order_by("name").values_list("name", flat=True))

    def find(self, request: HttpRequest, queryset: QuerySet[Any], position: str | None) -> Page:
        """Return the ids of the page at `position`; raise ValueError for an invalid position."""
        start = int(position or 0)
        if not 0 <= start <= MAX_OFFSET:
            raise ValueError(f"invalid position {position!r}")
        end = start + self.list_per_page
        ids = tuple(queryset.values_list("pk", flat=True)[start : end + 1])
        is_last = len(ids) <= self.list_per_page
        return Page(ids=ids[: self.list_per_page], next=None if is_last else str(end))

    def rows_of(self, request: HttpRequest, ids: Sequence[Any]) -> list[Model]:
        """Return the rows of one page of the list that the user may view, in the order of `ids`."""
        rows = self.get_page_queryset(request).in_bulk(ids)
        return [
            rows[id] for id in ids if id in rows and self.has_view_permission(request, rows[id])
        ]

    def get_page_queryset(self, request: HttpRequest) -> Any:
        """Return the queryset that reads the columns of the list."""
        return self.get_queryset(request)

    def url(self, name: str, *arguments: Any) -> str:
        """Return the URL of a page of this model on the admin site that it is registered with."""
        view = f"admin:{self.opts.app_label}_{self.opts.model_name}_{name}"
        return reverse(view, args=arguments, current_app=self.admin_site.name)

    def render(
        self, request: HttpRequest, template: str, *, status: int = 200, **context: Any
    ) -> TemplateResponse:
        """Return a page of the app from one of its templates."""
        request.current_app = self.admin_site.name
        defaults = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "media": self.media,
            "has_breadcrumb_list": django.VERSION >= (6, 1),
        }
        return TemplateResponse(
            request,
            f"admin/django_mqlite/{template}.html",
            {**defaults, **context},
            status=status,
        )


def nothing_changed(error: Exception) -> str:
    return gettext("Nothing was changed: %(error)s") % {"error": error}


class QueueFilter(admin.SimpleListFilter):
    """Filter by queue; the choices come from the queues, without DISTINCT over the messages."""

    title = _("queue")
    parameter_name = "queue"

    def lookups(
        self, request: HttpRequest, model_admin: "admin.ModelAdmin[Any]"
    ) -> list[tuple[str, str]]:
        names = cast("BaseAdmin", model_admin).queue_names(request)
        return [(name, name) for name in names]

    def has_output(self) -> bool:
        return True  # even with a single queue, so that links to the list show their filter

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return queryset.filter(queue=self.value()) if self.value() else queryset


class StateFilter(admin.SimpleListFilter):
    """Filter by state, shown with the task status that corresponds to it."""

    title = _("state")
    parameter_name = "state"

    def lookups(
        self, request: HttpRequest, model_admin: "admin.ModelAdmin[Any]"
    ) -> list[tuple[str, Any]]:
        return [
            (state.value, format_lazy("{} ({})", STATES[state], STATUSES[state])) for state in State
        ]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return queryset.filter(state=self.value()) if self.value() else queryset


class TextFilter(admin.SimpleListFilter):
    """Filter by the exact text that the user types."""

    template = "admin/django_mqlite/text_filter.html"
    input_type = "text"
    column: str

    def lookups(self, request: HttpRequest, model_admin: "admin.ModelAdmin[Any]") -> list[Any]:
        return []

    def has_output(self) -> bool:
        return True

    def choices(self, changelist: ChangeList) -> Iterator[Any]:
        """Yield the context of the form, which keeps the other filters of the list."""
        excluded = (self.parameter_name, PAGE_VAR)
        yield {
            "name": self.parameter_name,
            "type": self.input_type,
            "value": self.value() or "",
            "others": [item for item in changelist.params.items() if item[0] not in excluded],
            "without": changelist.get_query_string(remove=[str(self.parameter_name)]),
        }

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return queryset.filter(**{self.column: self.value()}) if self.value() else queryset


class GroupFilter(TextFilter):
    title = _("group")
    parameter_name = "group"
    column = "group_id"


class ReasonFilter(TextFilter):
    title = _("reason")
    parameter_name = "reason"
    column = "dead_letter_reason"


class ErrorClassFilter(TextFilter):
    title = _("error class")
    parameter_name = "error_class"
    column = "error_class"


def log(request: HttpRequest, objects: Sequence[Model], action_flag: int, text: str) -> None:
    """Add an entry for each object to the admin log.

    `text` is not translated, because users of any language read the log.
    """
    LogEntry.objects.log_actions(
        user_id=cast("int", request.user.pk),
        queryset=objects,
        action_flag=action_flag,
        change_message=text,
    )
