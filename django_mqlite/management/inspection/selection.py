"""Dead letters named one by one."""

from collections.abc import Sequence
from typing import Any

from django.core.management.base import CommandError

from django_mqlite.managers import DeadLetterManager


def checked_ids(letters: DeadLetterManager[Any], queue: str, ids: Sequence[int]) -> list[int]:
    """`ids`, each once, if all are dead letters of `queue`; CommandError with the others if not."""
    found = set(letters.matching(queue, ids=ids).values_list("pk", flat=True))
    strangers = [id for id in dict.fromkeys(ids) if id not in found]
    if strangers:
        named = ", ".join(f"#{id}" for id in strangers)
        raise CommandError(
            f"Not among the dead letters of queue {queue!r}: {named}. Nothing was done. "
            f"`manage.py mqlite peek {queue} --dead` lists them."
        )
    return sorted(found)
