"""A subscription as a form: its filter is checked, and can be tried against a sample."""

from dataclasses import dataclass
from typing import Any

from django import forms
from django.core.exceptions import ImproperlyConfigured, ValidationError
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from .. import timing
from ..conf import get_settings
from ..exceptions import MqliteError
from ..filters import check_filter, judge, names_of
from ..message import draft
from ..names import checked_name

TRY = "_try"
"""The name of the button that tries and does not save."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What the filter says of the sample."""

    matches: bool
    text: str


class SubscriptionForm(forms.ModelForm):  # type: ignore[type-arg]
    """Topic, name and filter; and a sample message to try the filter on."""

    sample_subject = forms.CharField(label=_("subject"), required=False)
    sample_properties = forms.JSONField(
        label=_("properties"), required=False, help_text=_('JSON, e.g. {"country": "de"}')
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

    verdict: Verdict | None = None

    def is_valid(self) -> bool:
        """Never for a trial, so that nothing is saved; then there is a verdict or an error."""
        return super().is_valid() and TRY not in self.data

    def clean_topic(self) -> str:
        return _name(self.cleaned_data["topic"])

    def clean_subscription(self) -> str:
        return _name(self.cleaned_data["subscription"])

    def clean_filter(self) -> str:
        expression: str = self.cleaned_data["filter"].strip()
        try:
            check_filter(expression)
        except (ValueError, ImproperlyConfigured) as error:
            raise ValidationError(str(error)) from error
        return expression

    def clean(self) -> dict[str, Any]:
        values: dict[str, Any] = super().clean() or self.cleaned_data
        if TRY in self.data and not self.errors:
            self.verdict = self._try(values)
        return values

    def _try(self, values: dict[str, Any]) -> Verdict | None:
        try:
            sample = draft(
                "sample",
                values["sample_body"],
                max_body_bytes=get_settings().max_body_bytes,
                properties=values["sample_properties"],
                subject=values["sample_subject"] or None,
                group_id=values["sample_group_id"] or None,
                correlation_id=values["sample_correlation_id"] or None,
                reply_to=values["sample_reply_to"] or None,
                message_id=values["sample_message_id"] or None,
            )
        except (ValueError, TypeError, MqliteError) as error:
            self.add_error(None, str(error))
            return None
        try:
            matches = judge(values["filter"], names_of(sample, now=timing.now_ms()))
        except Exception as error:  # noqa: BLE001 - whatever a filter does, it is told
            text = gettext("The filter fails on this sample, so it lets nothing in: %(error)s")
            return Verdict(matches=False, text=text % {"error": error})
        if matches:
            return Verdict(matches=True, text=gettext("The filter lets this sample in."))
        return Verdict(matches=False, text=gettext("The filter does not let this sample in."))


def _name(value: str) -> str:
    try:
        return checked_name(value)
    except ValueError as error:
        raise ValidationError(str(error)) from error
