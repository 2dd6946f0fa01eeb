"""URLs and helpers for the tests of the admin."""

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
    """Return the sequence numbers in the list, in order."""
    pattern = r'<th class="field-id"><a href="[^"]*/(\d+)/change/'
    return list(map(int, re.findall(pattern, text_of(response))))


def act(client: Client, url: str, action: str, *objects: Any, **extra: Any) -> Any:
    """Select objects in a list and run an action."""
    selected = [selected.pk for selected in objects]
    return client.post(url, {"action": action, "_selected_action": selected, "index": 0, **extra})


def confirm(client: Client, action: str, *letters: Any, **extra: Any) -> Any:
    """Confirm an action on dead letters without reading its confirmation page."""
    selected = [letter.pk for letter in letters]
    answer = {"action": action, "_selected_action": selected, **confirmation(len(letters))}
    return client.post(DEAD_LETTERS, {**answer, **extra})


def confirmation(total: int) -> dict[str, Any]:
    """The hidden fields of the confirmation page."""
    now = timing.now_ms()
    progress = {"left": total, "until": now, "due": now, "queue": ""}
    progress |= dict.fromkeys(("done", "finished_at", "id"), 0)
    return {"confirmed": "yes", **{f"progress_{name}": value for name, value in progress.items()}}


def without_csrf_token(client: Client) -> Client:
    """Return a client of the same session that enforces CSRF and sends no token."""
    strict = Client(enforce_csrf_checks=True)
    strict.cookies = client.cookies
    return strict


def hidden_in(page: str) -> dict[str, str]:
    """Return the hidden fields of the page's form, as a browser posts them."""
    form = page[page.index('<div id="content"') :]
    return dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', form))


def text_after(client: Client) -> str:
    """Return the page after an action, with its messages."""
    return text_of(client.get(QUEUES))


@contextmanager
def read_only() -> Iterator[None]:
    """Make the database refuse writes inside the block."""
    _refuse_writes(True)
    try:
        yield
    finally:
        _refuse_writes(False)


def _refuse_writes(refuse: bool) -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"PRAGMA query_only = {int(refuse)}")
