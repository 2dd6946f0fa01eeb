"""The pages in another language."""

import pytest
from django.urls import reverse
from django.utils import translation

from tests.support.verbs import dead_letter

from .pages import DEAD_LETTERS, QUEUES, act, page_of, text_of

PAGES = {
    "overview": lambda client, letter: client.get(QUEUES),
    "dead letter": lambda client, letter: client.get(page_of(letter)),
    "confirmation": lambda client, letter: act(client, DEAD_LETTERS, "purge", letter),
}
TEXTS = [
    ("de", "overview", ["Übersicht der Warteschlangen", "jobs anhalten", "kein Worker"]),
    ("es", "overview", ["Resumen de las colas", "Pausar jobs", "sin worker"]),
    (
        "de",
        "dead letter",
        ["Warum #{id} in diesem Zustand", "#{id}: ist seit", "Wieder einreihen"],
    ),
    (
        "es",
        "dead letter",
        ["Por qué #{id} está", "#{id}: pasó a ser un mensaje fallido", "Reencolar"],
    ),
    ("de", "confirmation", ["1 unzustellbare Nachricht löschen?"]),
    ("es", "confirmation", ["1 mensaje fallido? Se eliminará definitivamente"]),
]


@pytest.mark.parametrize(("language", "page", "texts"), TEXTS)
def test_page_is_translated(operator, queue, language, page, texts):
    letter = dead_letter("jobs")

    with translation.override(language):
        page = text_of(PAGES[page](operator, letter))

    assert [text for text in texts if text.format(id=letter.pk) not in page] == []


@pytest.mark.parametrize("language", ["de", "es", "fr"])
def test_admin_log_stays_english(operator, queue, language):
    with translation.override(language):
        operator.post(QUEUES, {"pause": "jobs"})

    history = reverse("admin:django_mqlite_queue_history", args=["jobs"])
    assert "Paused." in text_of(operator.get(history))
