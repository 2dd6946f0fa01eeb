"""The next moment at which a sweep has something to do."""

from datetime import timedelta

import pytest

from django_mqlite import enqueue
from django_mqlite.verbs.sweeps import next_event_in
from tests.support.verbs import activate, claim_one

pytestmark = pytest.mark.django_db


def test_next_event_is_the_first_deadline_of_any_queue(clock, queue, make_queue):
    make_queue("other")
    assert next_event_in("default") is None
    enqueue("jobs", None)
    assert next_event_in("default") is None
    enqueue("other", None, delay=timedelta(hours=1))
    assert next_event_in("default") == 3_600
    message = claim_one("jobs")
    assert next_event_in("default") == 30
    enqueue("jobs", None, delay=5)
    assert next_event_in("default") == 5

    clock.advance(7)

    assert next_event_in("default") <= 0
    activate()
    assert next_event_in("default") == 23
    message.complete()
    assert next_event_in("default") == 3_593
