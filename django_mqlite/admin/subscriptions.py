"""Admin of subscriptions, with a form that tries a filter on a sample message."""

import json
from typing import Any

from django import forms
from django.contrib import admin
from django.core.exceptions import ImproperlyConfigured, ValidationError
from django.db import OperationalError
from django.http import HttpRequest
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from .. import timing
from ..conf import get_settings
from ..exceptions import MqliteError, NameConflict
from ..filters import check_filter, evaluate, filter_variables
from ..message import new_message
from ..models import Subscription
from ..names import checked_name
from .base import BaseAdmin
from .formatting import shortened

TRY_BUTTON = "_try"
"""The name of the button that tries the filter without saving."""

SAMPLE_TEXTS = ("subject", "group_id", "correlation_id", "reply_to", "message_id")
SAMPLE_FIELDS = [
    "sample_subject", "sample_properties", "sample_group_id", "sample_correlation_id",
    "sample_reply_to", "sample_message_id", "sample_body",
]  # fmt: skip


class StrictDecoder(json.JSONDecoder):
    """A decoder that rejects JSON that Python cannot parse or cannot write."""

    def decode(self, text: str, *args: Any) -> Any:
        try:
            value = super().decode(text, *args)
            json.dumps(value, ensure_ascii=False).encode()
        except json.JSONDecodeError:
            raise
        except (ValueError, RecursionError) as error:  # such as a number of 5,000 digits
            raise json.JSONDecodeError(str(error), text, 0) from error
        return value


class SubscriptionForm(forms.ModelForm):  # type: ignore[type-arg]
    """Topic, name and filter, and a sample message to try the filter on."""

    sample_subject = forms.CharField(label=_("subject"), required=False)
    sample_properties = forms.JSONField(
        label=_("properties"),
        required=False,
        decoder=StrictDecoder,
        help_text=_('JSON, for example {"country": "de"}'),
    )
    sample_group_id = forms.CharField(label=_("group id"), required=False)
    sample_correlation_id = forms.CharField(label=_("correlation id"), required=False)
    sample_reply_to = forms.CharField(label=_("reply to"), required=False)
    sample_message_id = forms.CharField(label=_("message id"), required=False)
    sample_body = forms.CharField(
        label=_("body"), required=False, widget=forms.Textarea(attrs={"rows": 3}), strip=False
    )

    class Meta:
        widgets = {
            "topic": forms.TextInput,
            "subscription": forms.TextInput,
            "filter": forms.Textarea(attrs={"rows": 3, "class": "vLargeTextField"}),
        }

    matches_sample: bool | None = None
    """The result of the trial; None without a trial or after an invalid sample."""
    trial_result = ""

    def is_valid(self) -> bool:
        """Return False for a trial, so that nothing is saved."""
        return super().is_valid() and TRY_BUTTON not in self.data

    def clean_topic(self) -> str:
        return _valid_name(self.cleaned_data["topic"])

    def clean_subscription(self) -> str:
        return _valid_name(self.cleaned_data["subscription"])

    def clean_filter(self) -> str:
        expression: str = self.cleaned_data["filter"].strip()
        try:
            check_filter(expression)
        except (ValueError, ImproperlyConfigured) as error:
            raise ValidationError(str(error)) from error
        return expression

    def clean(self) -> dict[str, Any]:
        values: dict[str, Any] = super().clean() or self.cleaned_data
        if TRY_BUTTON in self.data and not self.errors:
            self._try_filter(values)
        return values

    def _try_filter(self, values: dict[str, Any]) -> None:
        texts: dict[str, Any] = {name: values[f"sample_{name}"] or None for name in SAMPLE_TEXTS}
        try:
            sample = new_message(
                "sample",
                values["sample_body"],
                max_body_bytes=get_settings().max_body_bytes,
                properties=values["sample_properties"],
                **texts,
            )
        except (ValueError, TypeError, MqliteError) as error:
            self.add_error(None, str(error))
            return
        try:
            self.matches_sample = evaluate(
                values["filter"], filter_variables(sample, now=timing.now_ms())
            )
        except Exception as error:  # noqa: BLE001 - every error of a filter is shown
            self.matches_sample = False
            text = gettext("The filter fails on this sample, so it does not match: %(error)s")
            self.trial_result = text % {"error": error}
        else:
            self.trial_result = (
                gettext("The filter matches this sample.")
                if self.matches_sample
                else gettext("The filter does not match this sample.")
            )


def _valid_name(value: str) -> str:
    try:
        return checked_name(value)
    except ValueError as error:
        raise ValidationError(str(error)) from error


class SubscriptionAdmin(BaseAdmin):
    """Subscriptions can be added and their filters changed.

    They cannot be deleted here, because that deletes the subscription's queue.
    """

    form = SubscriptionForm
    list_display = ("subscription", "topic", "short_filter", "created_at")
    ordering = ("topic", "subscription")
    search_fields = ("topic", "subscription")
    change_form_template = "admin/django_mqlite/subscription.html"
    reported_errors = (MqliteError, OperationalError)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return self.has_view_permission(request) and self.holds(request, "add_subscription")

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self.has_view_permission(request, obj) and self.holds(request, "change_subscription")

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        return ["topic", "subscription", "created_at"] if obj else []

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> list[tuple[Any, Any]]:
        names = ["topic", "subscription", "filter", *(["created_at"] if obj else [])]
        fieldsets: list[tuple[Any, Any]] = [(None, {"fields": names})]
        if self.has_change_permission(request) or (
            obj is None and self.has_add_permission(request)
        ):
            fieldsets.append((_("Sample message to try the filter on"), {"fields": SAMPLE_FIELDS}))
        return fieldsets

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        Subscription.objects.subscribe(obj.topic, obj.subscription, filter=obj.filter)

    def field_of(self, error: Exception) -> str | None:
        return "subscription" if isinstance(error, NameConflict) else None

    def construct_change_message(
        self, request: HttpRequest, form: Any, formsets: Any, add: bool = False
    ) -> Any:
        """Log the new filter, untranslated."""
        return f"Filter: {form.cleaned_data['filter'] or 'all messages'}"

    @admin.display(description=_("filter"))
    def short_filter(self, subscription: Subscription) -> str:
        return shortened(subscription.filter) or gettext("all messages")
