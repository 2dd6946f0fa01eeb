"""Requests with values that no page contains."""

import pytest
from django.urls import reverse

from django_mqlite.admin.actions import ACTIONS
from django_mqlite.models import DeadLetter
from tests.support.verbs import dead_letter

from .pages import DEAD_LETTERS, MESSAGES, QUEUES, confirmation

TOO_LARGE = [str(2**63), str(2**64), "9" * 40]
INVALID = [*TOO_LARGE, str(-(2**63) - 1), "-1", "0", "x", "1.5", ""]


@pytest.fixture
def letter(queue):
    return dead_letter("jobs")


@pytest.mark.parametrize("id", INVALID)
@pytest.mark.parametrize("confirmed", [False, True])
@pytest.mark.parametrize("action", ["redrive", "purge"])
def test_forged_selection_changes_nothing(operator, letter, action, confirmed, id):
    fields = {"action": action, "_selected_action": [id], "index": 0}

    response = operator.post(DEAD_LETTERS, fields | (confirmation(1) if confirmed else {}))

    assert response.status_code in (302, 400)
    assert DeadLetter.objects.get() == letter


@pytest.mark.parametrize("value", [*INVALID, str(2**63 - 1)])
@pytest.mark.parametrize("name", ["left", "until", "due", "done", "finished_at", "id", "queue"])
def test_forged_progress_changes_nothing(operator, letter, name, value, caplog):
    fields = {"action": "purge", "_selected_action": ["999"], **confirmation(1)}

    response = operator.post(DEAD_LETTERS, fields | {f"progress_{name}": value})

    assert response.status_code in (302, 400)
    assert response.status_code == 400 or value not in ("x", "1.5", "-1") or name == "queue"
    assert DeadLetter.objects.get() == letter


@pytest.mark.parametrize("id", TOO_LARGE)
def test_forged_id_is_no_error(operator, queue, id):
    assert operator.post(QUEUES, {"pause": id}).status_code == 302

    for model in ("message", "deadletter"):
        for page in ("change", "history", "delete", "body", *ACTIONS):
            url = reverse(f"admin:django_mqlite_{model}_{page}", args=[int(id)])
            for response in (operator.get(url), operator.post(url, {"confirmed": "yes"})):
                assert response.status_code in (302, 403, 404, 405)


@pytest.mark.parametrize("value", TOO_LARGE)
@pytest.mark.parametrize("url", [MESSAGES, DEAD_LETTERS])
@pytest.mark.parametrize("parameter", ["q", "p", "group", "queue", "state", "reason", "since"])
def test_forged_list_parameter_is_no_error(operator, queue, url, parameter, value):
    assert operator.get(url, {parameter: value}).status_code in (200, 302, 400)
