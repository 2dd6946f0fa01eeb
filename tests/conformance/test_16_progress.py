"""16 A handler records how much of its work is done."""

import math

import pytest
from asgiref.sync import async_to_sync
from django.db import connection
from django.test.utils import CaptureQueriesContext

from django_mqlite import LockLost, handler, handlers
from django_mqlite.models import DeadLetter, Message
from django_mqlite.task_backend.compat import task
from django_mqlite.testing import drain
from tests.support.verbs import claim_one, enqueue_and_claim, reap, row_of

pytestmark = pytest.mark.django_db


def progress_of(message):
    return row_of(message)["progress"]


@pytest.fixture
def message(queue):
    return enqueue_and_claim("jobs")


@pytest.mark.rule("16.1")
def test_progress_is_stored_and_readable_by_others(clock, message):
    message.set_progress(0.4, "page 12 of 30")

    now = round(clock.now.timestamp() * 1_000)
    expected = {"fraction": 0.4, "text": "page 12 of 30", "updated_at": now}
    assert Message.objects.get(pk=message.pk).progress == expected
    assert message.progress == expected


@pytest.mark.rule("16.1")
@pytest.mark.parametrize("fraction", [0, 0.5, 1])
def test_fraction_from_0_to_1_is_accepted(message, fraction):
    message.set_progress(fraction)

    assert progress_of(message)["fraction"] == fraction


@pytest.mark.rule("16.1")
@pytest.mark.parametrize("fraction", [True, -0.1, 1.1, math.nan, math.inf, "half", None])
def test_invalid_fraction_is_refused(message, fraction):
    with pytest.raises((TypeError, ValueError), match="fraction"):
        message.set_progress(fraction)

    assert progress_of(message) is None


@pytest.mark.rule("16.1")
@pytest.mark.parametrize("text", [None, 1, b"x", "a\0b", "\ud800", "x" * 2_000])
def test_invalid_progress_text_is_refused(message, text):
    with pytest.raises((TypeError, ValueError), match="text must"):
        message.set_progress(0.5, text)

    assert progress_of(message) is None


@pytest.mark.rule("16.2")
@pytest.mark.parametrize(
    "end",
    [
        lambda message, clock: message.complete(),
        lambda message, clock: message.abandon(delay=0),
        lambda message, clock: Message.objects.discard(message.pk),
        lambda message, clock: clock.advance(3_600),
    ],
    ids=["completed", "abandoned", "discarded", "expired"],
)
def test_ended_lease_cannot_set_the_progress(clock, make_queue, end):
    make_queue("jobs", retain_completed=3_600)
    message = enqueue_and_claim("jobs")
    end(message, clock)
    before = row_of(message)

    with pytest.raises(LockLost, match="set the progress of"):
        message.set_progress(0.5)

    assert row_of(message) == before


@pytest.mark.rule("16.2")
def test_message_that_was_only_read_has_no_progress_to_set(message):
    with pytest.raises(LockLost):
        Message.objects.get(pk=message.pk).set_progress(0.5)


def count_statements(message, fraction):
    with CaptureQueriesContext(connection) as captured:
        message.set_progress(fraction)
    return len(captured)


@pytest.mark.rule("16.3")
def test_progress_is_written_at_most_once_a_second(clock, message):
    message.set_progress(0.1)
    clock.advance(0.999)

    assert count_statements(message, 0.2) == 0
    assert progress_of(message)["fraction"] == 0.1
    clock.advance(0.001)
    message.set_progress(0.3)

    assert progress_of(message)["fraction"] == 0.3


@pytest.mark.rule("16.3")
def test_end_of_the_work_is_written_at_once(clock, message):
    message.set_progress(0.1)

    message.set_progress(1, "done")

    assert progress_of(message)["text"] == "done"


@pytest.mark.rule("16.4")
def test_progress_is_kept_until_the_message_is_redriven(clock, make_queue):
    make_queue("jobs", max_delivery_count=2)
    message = enqueue_and_claim("jobs")
    message.set_progress(0.5)
    clock.advance(60)
    reap()
    again = claim_one("jobs")
    assert progress_of(again)["fraction"] == 0.5

    again.abandon()
    assert progress_of(message)["fraction"] == 0.5
    DeadLetter.objects.redrive([message.pk])

    assert progress_of(message) is None


seen = []
"""The progress of each finished delivery."""


def work_in_steps(message):
    message.set_progress(0.5, "half")
    seen.append(progress_of(message)["text"])


async def work_in_steps_async(message):
    await message.aset_progress(0.5, "half")
    seen.append((await Message.objects.aget(pk=message.pk)).progress["text"])


@task(takes_context=True)
def work_task(context):
    context.set_progress(0.5, "half")
    seen.append(context.task_result.id)
    assert not context.lease_lost


@task(takes_context=True)
async def work_task_async(context):
    await context.aset_progress(0.5, "half")
    seen.append(context.task_result.id)


@pytest.fixture
def default_queue(make_queue, monkeypatch):
    monkeypatch.setattr(handlers, "_handlers", {})
    seen.clear()
    return make_queue("default", retain_completed=60)


@pytest.mark.rule("16.5")
@pytest.mark.parametrize(
    ("function", "atomic"),
    [(work_in_steps, False), (work_in_steps, True), (work_in_steps_async, False)],
    ids=["plain", "atomic", "async"],
)
def test_handler_of_every_flavour_sets_its_progress(clock, default_queue, function, atomic):
    handler("default", atomic=atomic)(function)
    message = Message.objects.enqueue("default", None)

    drain("default")

    assert seen == ["half"]
    assert progress_of(message)["fraction"] == 0.5


@pytest.mark.rule("16.5")
@pytest.mark.parametrize("function", [work_task, work_task_async], ids=["task", "async task"])
def test_task_sets_its_progress_and_the_result_has_it(clock, default_queue, function):
    result = function.enqueue()
    assert result.progress is None

    drain("default")

    result.refresh()
    assert seen == [result.id]
    assert result.progress["text"] == "half"
    assert function.get_result(result.id).progress == result.progress
    async_to_sync(result.arefresh)()
    assert result.progress["fraction"] == 0.5
