"""Addresses and words for the tests of the admin."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.db import connection
from django.test import Client
from django.urls import reverse

from django_mqlite import timing

QUEUES = reverse("admin:django_mqlite_queue_changelist")
MESSAGES = reverse("admin:django_mqlite_message_changelist")
DEAD_LETTERS = reverse("admin:django_mqlite_deadletter_changelist")
LISTS = [QUEUES, MESSAGES, DEAD_LETTERS]


def page_of(message: Any) -> str:
    return reverse(f"admin:django_mqlite_{message._meta.model_name}_change", args=[message.pk])


def text_of(response: Any) -> str:
    assert response.status_code == 200
    return response.content.decode()


def listed(response: Any) -> list[int]:
    """The sequence numbers in the list, in order."""
    pattern = r'<th class="field-id"><a href="[^"]*/(\d+)/change/'
    return list(map(int, re.findall(pattern, text_of(response))))


def act(client: Client, url: str, action: str, *objects: Any, **extra: Any) -> Any:
    """Select objects in a list and press the action's button."""
    selected = [each.pk for each in objects]
    return client.post(url, {"action": action, "_selected_action": selected, "index": 0, **extra})


def confirm(client: Client, action: str, *letters: Any, **extra: Any) -> Any:
    """Answer the confirmation page of an action on dead letters, whether or not it came."""
    selected = [each.pk for each in letters]
    answer = {"action": action, "_selected_action": selected, **confirmation(len(letters))}
    return client.post(DEAD_LETTERS, {**answer, **extra})


def confirmation(total: int) -> dict[str, Any]:
    """What the confirmation page adds to its question."""
    now = timing.now_ms()
    run = {"total": total, "until": now, "started": now, "queue": ""}
    run |= dict.fromkeys(("done", "kept", "since", "after"), 0)
    return {"confirmed": "yes", **{f"run_{name}": value for name, value in run.items()}}


def hidden_in(page: str) -> dict[str, str]:
    """The hidden fields of the page's own form, as a browser would post them."""
    form = page[page.index('<div id="content"') :]
    return dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', form))


def told(client: Client) -> str:
    """The page after an action, with what it tells."""
    return text_of(client.get(QUEUES))


@contextmanager
def read_only() -> Iterator[None]:
    """The database refuses writes inside the block."""
    _refuse_writes(True)
    try:
        yield
    finally:
        _refuse_writes(False)


def _refuse_writes(refuse: bool) -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"PRAGMA query_only = {int(refuse)}")
