"""Requests that no page offers."""

import pytest
from django.urls import reverse

from django_mqlite.admin.actions import ACTIONS
from django_mqlite.models import DeadLetter
from tests.support.verbs import dead_letter

from .conftest import VIEW
from .pages import DEAD_LETTERS, MESSAGES, QUEUES, confirmation

NO_IDS = [str(2**63), str(2**64), "9" * 40]
ALL = [action.permission for action in ACTIONS.values()]


@pytest.fixture
def forger(make_staff):
    return make_staff(*VIEW, *ALL, "pause_queue")


@pytest.mark.parametrize("id", [*NO_IDS, str(-(2**63) - 1), "-1", "0", "x", "1.5", ""])
@pytest.mark.parametrize("confirmed", [False, True])
@pytest.mark.parametrize("action", ["redrive", "purge"])
def test_forged_selection_changes_nothing(forger, queue, action, confirmed, id):
    letter = dead_letter("jobs")
    answer = {"action": action, "_selected_action": [id], "index": 0}

    response = forger.post(DEAD_LETTERS, answer | (confirmation(1) if confirmed else {}))

    assert response.status_code in (302, 400)
    assert list(DeadLetter.objects.values_list("pk", flat=True)) == [letter.pk]


@pytest.mark.parametrize("id", NO_IDS)
def test_forged_queue_selection_is_no_error(forger, queue, id):
    response = forger.post(QUEUES, {"action": "pause", "_selected_action": [id], "index": 0})

    assert response.status_code == 302


@pytest.mark.parametrize("id", NO_IDS)
@pytest.mark.parametrize("model", ["message", "deadletter"])
@pytest.mark.parametrize("page", ["change", "history", "delete", "body", *ACTIONS])
def test_forged_address_is_no_error(forger, queue, page, model, id):
    address = reverse(f"admin:django_mqlite_{model}_{page}", args=[int(id)])

    for response in (forger.get(address), forger.post(address, {"confirmed": "yes"})):
        assert response.status_code in (302, 403, 404, 405)


@pytest.mark.parametrize("id", NO_IDS)
@pytest.mark.parametrize("address", [MESSAGES, DEAD_LETTERS])
@pytest.mark.parametrize("parameter", ["q", "p", "group", "queue", "state", "reason"])
def test_forged_list_is_no_error(forger, queue, address, parameter, id):
    assert forger.get(address, {parameter: id}).status_code in (200, 302, 400)


@pytest.mark.parametrize("id", NO_IDS)
@pytest.mark.parametrize("name", ["left", "until", "due", "done", "finished_at", "id", "queue"])
def test_forged_progress_changes_nothing(forger, queue, name, id):
    letter = dead_letter("jobs")
    answer = {"action": "purge", "_selected_action": ["999"], **confirmation(1)}

    response = forger.post(DEAD_LETTERS, answer | {f"progress_{name}": id})

    assert response.status_code in (302, 400)
    assert DeadLetter.objects.filter(pk=letter.pk).exists()
