"""Django's admin log: who did what to which row."""

from collections.abc import Sequence
from typing import cast

from django.contrib.admin.models import LogEntry
from django.db.models import Model
from django.http import HttpRequest


def log(request: HttpRequest, objects: Sequence[Model], action_flag: int, text: str) -> None:
    """One entry for each of `objects`.

    The text is stored as it is, so it is not translated: its readers may speak another language.
    """
    LogEntry.objects.log_actions(
        user_id=cast("int", request.user.pk),
        queryset=objects,
        action_flag=action_flag,
        change_message=text,
    )
