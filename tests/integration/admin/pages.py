"""URLs and helpers for the tests of the admin."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.db import connection
from django.test import Client
from django.urls import reverse

from django_mqlite import timing
from django_mqlite.models import Message
from django_mqlite.types import UNFINISHED
from tests.support.verbs import dead_letter, deferred, enqueue_and_claim

QUEUES = reverse("admin:django_mqlite_queue_changelist")
MESSAGES = reverse("admin:django_mqlite_message_changelist")
DEAD_LETTERS = reverse("admin:django_mqlite_deadletter_changelist")
LISTS = [QUEUES, MESSAGES, DEAD_LETTERS]
MAKERS = {
    "active": lambda: Message.objects.enqueue("jobs", 1),
    "scheduled": lambda: Message.objects.enqueue("jobs", 1, delay=60),
    "locked": lambda: enqueue_and_claim("jobs", 1),
    "deferred": lambda: deferred("jobs"),
    "dead_lettered": lambda: dead_letter("jobs"),
}
"""Functions that store a message of a state."""
STATE_OF_ACTION = {
    "redrive": "dead_lettered",
    "purge": "dead_lettered",
    "release": "locked",
    "run_now": "scheduled",
    "cancel": "scheduled",
    "activate": "deferred",
    "discard": "locked",
}
"""A state in which each action is possible."""


def is_possible(action: str, state: str) -> bool:
    """Return whether an action is possible in a state."""
    return state in UNFINISHED if action == "discard" else state == STATE_OF_ACTION[action]


def page_of(message: Any) -> str:
    return reverse(f"admin:django_mqlite_{message._meta.model_name}_change", args=[message.pk])


def action_of(message: Any, action: str, model: str = "message") -> str:
    """Return the URL of an action on a message's page."""
    return reverse(f"admin:django_mqlite_{model}_{action}", args=[message.pk])


def text_of(response: Any) -> str:
    assert response.status_code == 200
    return response.content.decode()


def listed(response: Any) -> list[int]:
    """Return the sequence numbers in the list, in order."""
    pattern = r'<th class="field-id"><a href="[^"]*/(\d+)/change/'
    return list(map(int, re.findall(pattern, text_of(response))))


def selection(action: str, *objects: Any) -> dict[str, Any]:
    """Return the fields of an action on selected rows of a list."""
    return {
        "action": action,
        "_selected_action": [selected.pk for selected in objects],
        "index": 0,
    }


def confirmation(total: int) -> dict[str, Any]:
    """Return the hidden fields of the confirmation page."""
    now = timing.now_ms()
    progress = {"left": total, "until": now, "due": now, "queue": ""}
    progress |= dict.fromkeys(("done", "entry", "finished_at", "id"), 0)
    return {"confirmed": "yes", **{f"progress_{name}": value for name, value in progress.items()}}


def act(client: Client, url: str, action: str, *objects: Any) -> Any:
    """Select objects in a list and run an action."""
    return client.post(url, selection(action, *objects))


def confirm(client: Client, action: str, *letters: Any, **extra: Any) -> Any:
    """Confirm an action on dead letters without reading its confirmation page."""
    fields = selection(action, *letters) | confirmation(len(letters)) | extra
    return client.post(DEAD_LETTERS, fields)


def without_csrf_token(client: Client) -> Client:
    """Return a client of the same session that enforces CSRF and sends no token."""
    strict = Client(enforce_csrf_checks=True)
    strict.cookies = client.cookies
    return strict


def hidden_in(page: str) -> dict[str, list[str]]:
    """Return the hidden fields of the page's form, as a browser posts them."""
    form = page[page.index('<div id="content"') :]
    fields: dict[str, list[str]] = {}
    for name, value in re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', form):
        fields.setdefault(name, []).append(value)
    return fields


def text_after(client: Client) -> str:
    """Return the page after an action, with its messages."""
    return text_of(client.get(QUEUES))


@contextmanager
def read_only() -> Iterator[None]:
    """Make the database refuse writes inside the block."""
    with connection.cursor() as cursor:
        cursor.execute("PRAGMA query_only = 1")
        try:
            yield
        finally:
            cursor.execute("PRAGMA query_only = 0")
