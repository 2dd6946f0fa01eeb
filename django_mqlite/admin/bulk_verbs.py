"""What can be done to many dead letters at once."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django import forms
from django.contrib.admin.models import CHANGE, DELETION
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext_lazy

from ..models import DeadLetter, Queue
from ..types import BulkCount


class RedriveForm(forms.Form):
    """Where to and how fast."""

    into = forms.ChoiceField(label=_("Into the queue"), required=False)
    rate = forms.FloatField(
        label=_("Messages a second"),
        required=False,
        min_value=1 / 3600,
        max_value=1_000_000,
        help_text=_("Spreads them out; left empty, all are at work at once."),
    )

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        names = Queue.objects.order_by("name").values_list("name", flat=True)
        choices = [("", _("each back into its own")), *((name, name) for name in names)]
        self.fields["into"].choices = choices  # type: ignore[attr-defined]


def _redrive(ids: Sequence[int], options: Mapping[str, Any], delay: float) -> BulkCount:
    return DeadLetter.objects.redrive(
        ids, into=options.get("into") or None, rate=options.get("rate"), delay=delay
    )


def _purge(ids: Sequence[int], options: Mapping[str, Any], delay: float) -> BulkCount:
    return DeadLetter.objects.purge(ids)


def _redriven(options: Mapping[str, Any]) -> str:
    """For the log, which is not translated."""
    into = f" into {options['into']}" if options.get("into") else ""
    rate = f" at {options['rate']:g} a second" if options.get("rate") else ""
    return f"Redriven{into}{rate}."


def _purged(options: Mapping[str, Any]) -> str:
    return "Purged."


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkVerb:
    """What is asked, done, said and logged."""

    action: str
    title: Any
    question: Any
    button: Any
    button_for_all: Any
    act: Callable[[Sequence[int], Mapping[str, Any], float], BulkCount]
    """Ids, the form's values, and after how many seconds the first is due."""
    done: Any
    log_flag: int
    log_text: Callable[[Mapping[str, Any]], str]
    form: type[forms.Form] = forms.Form
    is_deletion: bool = False


REDRIVE = BulkVerb(
    action="redrive",
    title=_("Redrive dead letters"),
    question=ngettext_lazy(
        "Put %(count)d dead letter back to work? Its deliveries are counted from 0 again.",
        "Put %(count)d dead letters back to work? Their deliveries are counted from 0 again.",
        "count",
    ),
    button=_("Redrive"),
    button_for_all=_("Redrive all that match"),
    act=_redrive,
    done=ngettext_lazy(
        "%(count)d dead letter is back at work.",
        "%(count)d dead letters are back at work.",
        "count",
    ),
    log_flag=CHANGE,
    log_text=_redriven,
    form=RedriveForm,
)

PURGE = BulkVerb(
    action="purge",
    title=_("Purge dead letters"),
    question=ngettext_lazy(
        "Delete %(count)d dead letter for good? It cannot be brought back.",
        "Delete %(count)d dead letters for good? They cannot be brought back.",
        "count",
    ),
    button=_("Purge"),
    button_for_all=_("Purge all that match"),
    act=_purge,
    done=ngettext_lazy(
        "%(count)d dead letter is gone for good.",
        "%(count)d dead letters are gone for good.",
        "count",
    ),
    log_flag=DELETION,
    log_text=_purged,
    is_deletion=True,
)
