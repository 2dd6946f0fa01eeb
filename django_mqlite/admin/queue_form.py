"""A queue's options as a form, in the words and units of MQLITE['QUEUES']."""

from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.utils.translation import gettext_lazy as _

from ..timing import MAX_DURATION_MS, milliseconds
from ..types import MAX_INTEGER, OrderingMode, QueueConfig

IN_MILLISECONDS = (
    "lock_duration", "backoff_base", "backoff_max", "default_ttl", "dedup_window",
    "retain_completed", "dlq_max_age",
)  # fmt: skip
"""The options whose column counts milliseconds."""

INHERITED = _("Empty: the setting's; -1: unbounded.")


class LengthField(forms.FloatField):
    """Seconds on the page, whole milliseconds in the row."""

    def __init__(self, *, least: int = 0, **options: Any) -> None:
        super().__init__(min_value=least / 1000, max_value=MAX_DURATION_MS / 1000, **options)

    def clean(self, value: Any) -> int:
        return milliseconds(super().clean(value), "length")


class BoundField(forms.FloatField):
    """A bound on dead letters: empty inherits the setting, 0 in the row; -1 is none."""

    def __init__(self, *, factor: int = 1, **options: Any) -> None:
        self.factor = factor
        super().__init__(required=False, help_text=INHERITED, **options)

    def clean(self, value: Any) -> int:
        number = super().clean(value)
        if number is None:
            return 0
        if number == -1:
            return -1
        if not 0 < number * self.factor <= MAX_INTEGER // 2 or int(number * self.factor) == 0:
            raise ValidationError(_("A number above 0, -1, or nothing."))
        return int(number * self.factor)


class QueueForm(forms.ModelForm):  # type: ignore[type-arg]
    """The options of an existing queue."""

    ordering_mode = forms.ChoiceField(
        label=_("ordering mode"), choices=[(mode.value, mode.value) for mode in OrderingMode]
    )
    max_delivery_count = forms.IntegerField(
        label=_("maximum delivery count"), min_value=1, max_value=MAX_INTEGER
    )
    dead_letter_on_expire = forms.BooleanField(label=_("dead-letter on expiry"), required=False)
    lock_duration = LengthField(label=_("lock duration (s)"), least=1)
    backoff_base = LengthField(label=_("backoff base (s)"))
    backoff_max = LengthField(label=_("backoff maximum (s)"))
    default_ttl = LengthField(label=_("default time to live (s)"), help_text=_("0: unlimited."))
    dedup_window = LengthField(label=_("deduplication window (s)"), help_text=_("0: off."))
    retain_completed = LengthField(
        label=_("keep completed for (s)"), help_text=_("0: deleted at once.")
    )
    dlq_max_age = BoundField(label=_("dead letters: maximum age (s)"), factor=1000)
    dlq_max_count = BoundField(label=_("dead letters: maximum count"))
    dlq_max_bytes = BoundField(label=_("dead letters: maximum bytes"))

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        for name in IN_MILLISECONDS:
            self.initial[name] = getattr(self.instance, f"{name}_ms") / 1000
        for name in ("dlq_max_age", "dlq_max_count", "dlq_max_bytes"):
            value = self.initial.get(name, 0)
            self.initial[name] = -1 if value < 0 else value or None

    def config(self) -> QueueConfig:
        """The row that was asked for."""
        columns = {
            f"{name}_ms" if name in IN_MILLISECONDS else name: value
            for name, value in self.cleaned_data.items()
        }
        return QueueConfig(kind=self.instance.kind, **columns)
