"""The page that asks before something is done."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django import forms
from django.http import HttpRequest
from django.template.response import TemplateResponse

from .read_only import ReadOnlyAdmin


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A question, and what the answer "yes" posts to the same address."""

    question: Any
    button: Any
    hidden: Sequence[tuple[str, Any]]
    back: str
    details: Sequence[str] = ()
    is_deletion: bool = False


def ask(
    model_admin: ReadOnlyAdmin,
    request: HttpRequest,
    asked: Asked,
    *,
    title: Any,
    form: forms.Form | None = None,
) -> TemplateResponse:
    """The page with the question; answering it changes something, looking at it does not."""
    context = {"title": title, "asked": asked, "form": form}
    return page(model_admin, request, "confirm", context)


def page(
    model_admin: ReadOnlyAdmin, request: HttpRequest, template: str, context: dict[str, Any]
) -> TemplateResponse:
    """A page of ours within the admin site it was asked for on."""
    request.current_app = model_admin.admin_site.name
    surroundings = {
        **model_admin.admin_site.each_context(request),
        "opts": model_admin.opts,
        "media": model_admin.media,
    }
    return TemplateResponse(
        request, f"admin/django_mqlite/{template}.html", {**surroundings, **context}
    )
