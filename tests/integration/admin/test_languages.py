"""The pages in another language."""

import pytest
from django.urls import reverse
from django.utils import translation

from tests.support.verbs import dead_letter

from .pages import DEAD_LETTERS, QUEUES, act, page_of, text_after, text_of

SUBSCRIPTIONS = reverse("admin:django_mqlite_subscription_changelist")


@pytest.mark.parametrize(
    ("language", "words"),
    [
        ("de", ["Übersicht der Warteschlangen", "Anhalten<span", "kein Worker"]),
        ("es", ["Resumen de las colas", "Pausar<span", "sin worker"]),
    ],
)
def test_overview_is_translated(operator, queue, language, words):
    with translation.override(language):
        page = text_of(operator.get(QUEUES))

    assert [word for word in words if word not in page] == []


@pytest.mark.parametrize(
    ("language", "words"),
    [
        (
            "de",
            [
                "Warum #{id} in diesem Zustand",
                "#{id}: ist seit",
                "Wieder einreihen",
            ],
        ),
        (
            "es",
            [
                "Por qué #{id} está",
                "#{id}: pasó a ser un mensaje fallido",
                "Reencolar",
            ],
        ),
    ],
)
def test_dead_letter_page_is_translated(operator, queue, language, words):
    letter = dead_letter("jobs")

    with translation.override(language):
        page = text_of(operator.get(page_of(letter)))

    assert [word for word in words if word.format(id=letter.pk) not in page] == []


@pytest.mark.parametrize(
    ("language", "question", "done"),
    [
        ("de", "1 unzustellbare Nachricht löschen?", "Anhalten"),
        ("es", "1 mensaje fallido? Se eliminará definitivamente", "Pausar"),
    ],
)
def test_confirmation_is_translated(operator, queue, language, question, done):
    letter = dead_letter("jobs")

    with translation.override(language):
        assert question in text_of(act(operator, DEAD_LETTERS, "purge", letter))
        assert done in text_after(operator)


@pytest.mark.parametrize("language", ["de", "es", "fr"])
def test_admin_log_stays_english(operator, queue, language):
    with translation.override(language):
        act(operator, QUEUES, "pause", queue)

    assert "Paused." in text_of(
        operator.get(reverse("admin:django_mqlite_queue_history", args=["jobs"]))
    )
