"""The pages in another language."""

import pytest
from django.urls import reverse
from django.utils import translation

from tests.support.verbs import dead_letter

from .pages import DEAD_LETTERS, QUEUES, act, page_of, text_of, told

SUBSCRIPTIONS = reverse("admin:django_mqlite_subscription_changelist")


@pytest.mark.parametrize(
    ("language", "words"),
    [
        ("de", ["Übersicht der Warteschlangen", "Anhalten<span", "kein Worker"]),
        ("es", ["Resumen de las colas", "Pausar<span", "sin worker vivo"]),
    ],
)
def test_the_overview_speaks_the_readers_language(operator, queue, language, words):
    with translation.override(language):
        page = text_of(operator.get(QUEUES))

    assert [word for word in words if word not in page] == []


@pytest.mark.parametrize(
    ("language", "words"),
    [
        ("de", ["Warum #{id} da ist", "#{id}: ist unzustellbar seit", "Wieder einreihen"]),
        ("es", ["Por qué #{id} está", "#{id}: es un mensaje fallido desde", "Reencolar"]),
    ],
)
def test_a_dead_letter_speaks_it(operator, queue, language, words):
    letter = dead_letter("jobs")

    with translation.override(language):
        page = text_of(operator.get(page_of(letter)))

    assert [word for word in words if word.format(id=letter.pk) not in page] == []


@pytest.mark.parametrize(
    ("language", "question", "done"),
    [
        ("de", "1 unzustellbare Nachricht endgültig", "Anhalten"),
        ("es", "1 mensaje fallido para siempre", "Pausar"),
    ],
)
def test_a_question_and_its_answer_speak_it(operator, queue, language, question, done):
    letter = dead_letter("jobs")

    with translation.override(language):
        assert question in text_of(act(operator, DEAD_LETTERS, "purge", letter))
        assert done in told(operator)


@pytest.mark.parametrize("language", ["de", "es", "fr"])
def test_what_is_logged_stays_english(operator, queue, language):
    with translation.override(language):
        act(operator, QUEUES, "pause", queue)

    assert "Paused." in text_of(
        operator.get(reverse("admin:django_mqlite_queue_history", args=["jobs"]))
    )
