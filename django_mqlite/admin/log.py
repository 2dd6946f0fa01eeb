"""Django's admin log: who did what to which row."""

from collections.abc import Sequence
from typing import cast

from django.contrib.admin.models import LogEntry
from django.contrib.contenttypes.models import ContentType
from django.db.models import Model
from django.http import HttpRequest

# The texts are stored as they are, so they are not translated: their readers may speak another
# language.


def log(request: HttpRequest, objects: Sequence[Model], action_flag: int, text: str) -> None:
    """One entry for each of `objects`."""
    LogEntry.objects.log_actions(
        user_id=cast("int", request.user.pk),
        queryset=objects,
        action_flag=action_flag,
        change_message=text,
    )


def log_many(
    request: HttpRequest, model: type[Model], objects: str, action_flag: int, text: str
) -> None:
    """One entry for many, which `objects` describes."""
    LogEntry.objects.create(
        user_id=cast("int", request.user.pk),
        content_type=ContentType.objects.get_for_model(model),
        object_repr=objects[:200],
        action_flag=action_flag,
        change_message=text,
    )
