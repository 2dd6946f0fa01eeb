"""Admin of access keys: the list, a form that creates one and shows its secret, and revoking."""

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.models import CHANGE
from django.core.exceptions import ValidationError
from django.db import OperationalError
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext, ngettext
from django.utils.translation import gettext_lazy as _
from django.views.decorators.debug import sensitive_variables

from ..exceptions import MqliteError
from ..models import AccessKey
from ..names import checked_name
from ..transactions import write_transaction
from ..types import RIGHTS, Right, patterns_of
from ..verbs.keys import checked_patterns
from .base import BaseAdmin, log, nothing_changed

STATUSES = {"valid": _("valid"), "expired": _("expired"), "revoked": _("revoked")}
MAX_DAYS = 36_500


class PatternsField(forms.CharField):
    """Names or patterns of queues, separated by commas or spaces."""

    def __init__(self, right: Right, **options: Any) -> None:
        self.right = right
        super().__init__(required=False, **options)

    def clean(self, value: Any) -> list[str]:
        patterns = [pattern for pattern in re.split(r"[\s,]+", super().clean(value)) if pattern]
        try:
            return checked_patterns(patterns, self.right)
        except ValueError as error:
            raise ValidationError(str(error)) from error


class AccessKeyForm(forms.ModelForm):  # type: ignore[type-arg]
    """The name, the rights and the lifetime of a new access key."""

    send = PatternsField(
        "send",
        label=_("Send"),
        help_text=_('Names of queues and topics, such as "orders* emails"; * allows all.'),
    )
    listen = PatternsField(
        "listen", label=_("Listen"), help_text=_("Receive from these queues and settle.")
    )
    manage = PatternsField(
        "manage",
        label=_("Manage"),
        help_text=_("Configure, inspect, redrive and purge these queues."),
    )
    days = forms.IntegerField(
        label=_("Valid for (days)"),
        required=False,
        min_value=1,
        max_value=MAX_DAYS,
        help_text=_("Leave empty for a key that does not expire."),
    )

    class Meta:
        widgets = {"name": forms.TextInput}

    def clean_name(self) -> str:
        try:
            return checked_name(self.cleaned_data["name"], "access key")
        except ValueError as error:
            raise ValidationError(str(error)) from error

    def clean(self) -> dict[str, Any]:
        values: dict[str, Any] = super().clean() or self.cleaned_data
        if not self.errors and not any(values[right] for right in RIGHTS):
            raise ValidationError(_("A key needs at least one right."))
        return values


def _patterns(right: Right, label: Any) -> Callable[..., str]:
    @admin.display(description=label)
    def display(model_admin: Any, key: AccessKey) -> str:
        return ", ".join(patterns_of(key.rights, right))

    return display


class AccessKeyAdmin(BaseAdmin):
    """Access keys are created and revoked here; what they may do cannot be changed."""

    form = AccessKeyForm
    list_display = (
        "name", "sends", "listens", "manages", "status_shown", "created_at", "expires_at",
        "last_used_at",
    )  # fmt: skip
    ordering = ("name",)
    search_fields = ("name",)
    actions = ("revoke",)
    reported_errors = (MqliteError, OperationalError)

    sends = _patterns("send", _("send"))
    listens = _patterns("listen", _("listen"))
    manages = _patterns("manage", _("manage"))

    @admin.display(description=_("status"))
    def status_shown(self, key: AccessKey) -> str:
        return str(STATUSES[key.status])

    def has_add_permission(self, request: HttpRequest) -> bool:
        return self.has_view_permission(request) and self.holds(request, "add_accesskey")

    def has_revoke_permission(self, request: HttpRequest, obj: AccessKey | None = None) -> bool:
        return self.has_view_permission(request, obj) and self.holds(request, "revoke_accesskey")

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> list[tuple[Any, Any]]:
        if obj is None:
            return [(None, {"fields": ("name", *RIGHTS, "days")})]
        return [(None, {"fields": (*self.list_display, "revoked_at")})]

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        return [] if obj is None else [*self.list_display, "revoked_at"]

    @sensitive_variables()
    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        values = form.cleaned_data
        lifetime = timedelta(days=values["days"]) if values["days"] else None
        rights = {right: values[right] for right in RIGHTS}
        obj.secret = AccessKey.objects.create_key(
            obj.name, **rights, expires_in=lifetime
        ).secret  # for response_add(), and nowhere else

    def response_add(self, request: HttpRequest, obj: Any, *args: Any) -> HttpResponse:
        """Show the secret in the answer to the POST, because a message would store it."""
        title = gettext("Access key %(name)s") % {"name": obj.name}
        return self.render(request, "access_key_secret", title=title, secret=obj.secret)

    def construct_change_message(
        self, request: HttpRequest, form: Any, formsets: Any, add: bool = False
    ) -> Any:
        """Log the rights of the key, untranslated."""
        values = form.cleaned_data
        return "; ".join(f"{right}: {', '.join(values[right])}" for right in RIGHTS)

    @admin.action(description=_("Revoke selected access keys"), permissions=["revoke"])
    def revoke(self, request: HttpRequest, queryset: QuerySet[AccessKey]) -> None:
        try:
            with write_transaction(AccessKey.objects.database):
                permitted = [key for key in queryset if self.has_revoke_permission(request, key)]
                revoked = [key for key in permitted if key.revoke()]
                log(request, revoked, CHANGE, "Revoked.")
        except (MqliteError, OperationalError) as error:
            self.message_user(request, nothing_changed(error), messages.ERROR)
            return
        text = ngettext(
            "%(count)d access key revoked.", "%(count)d access keys revoked.", len(revoked)
        )
        self.message_user(request, text % {"count": len(revoked)}, messages.SUCCESS)
