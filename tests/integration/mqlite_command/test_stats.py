"""mqlite stats."""

from django_mqlite.models import Message, Queue
from tests.support.verbs import dead_letter

from .calls import Terminal, answer, mqlite


def test_an_empty_database_is_told_how_to_get_a_queue(db):
    Queue.objects.all().delete()

    assert "There are no queues. Declare them" in mqlite("stats")
    assert answer("stats") == {"queues": []}


def test_text_in_a_pipe_is_aligned_and_plain(settings, queue, make_queue):
    settings.TIME_ZONE = "UTC"
    make_queue("a-long-name").pause()
    Message.objects.enqueue("jobs", 1)
    dead_letter("jobs")

    heads, *rows = mqlite("stats").splitlines()

    assert heads.split("  ")[0] == "queue"
    assert [row.split() for row in rows] == [
        ["a-long-name", "0", "0", "0", "0", "0", "0", "-", "0", "0", "0", "yes"],
        ["jobs", "1", "0", "0", "0", "0", "1", "2026-01-01", "00:00:00", "0", "0", "0", "no"],
    ]
    assert {row.index(" no" if "jobs" in row else " yes") for row in rows} == {
        heads.index(" paused")
    }


def test_json_has_stable_keys(queue):
    Message.objects.enqueue("jobs", 1)

    assert answer("stats") == {
        "queues": [
            {
                "queue": "jobs",
                "paused": False,
                "counts": {
                    "active": 1,
                    "locked": 0,
                    "deferred": 0,
                    "scheduled": 0,
                    "completed": 0,
                    "dead_lettered": 0,
                },
                "due_since": "2026-01-01T00:00:00+00:00",
                "workers": 0,
                "slots": 0,
                "completed_last_hour": 0,
                "failed_last_hour": 0,
            }
        ]
    }


def test_terminal_gets_the_same_table_as_a_pipe(queue):
    assert mqlite("stats", stdout=Terminal()) == mqlite("stats")
    assert "─" not in mqlite("stats")
