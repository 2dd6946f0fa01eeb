"""A lease ends: complete, abandon, reject. Each verb is fenced by the whole lease and by time."""

from copy import copy
from datetime import timedelta

import pytest

from django_mqlite import LockLost, enqueue, signals
from django_mqlite.models import DeadLetter, Message
from django_mqlite.types import Abandonment, Completion, Rejection
from tests.support.verbs import (
    activate,
    claim_ids,
    claim_one,
    enqueue_and_claim,
    reap,
    row_of,
    state_of,
)

pytestmark = pytest.mark.django_db


def settled_as(outcome, error=None):
    def verb(message):
        return Message.objects.settle(message, outcome, error=error)

    return verb


def renew(message):
    return Message.objects.renew_many([message], 60)[0]


VERBS = {
    "complete": settled_as(Completion()),
    "abandon": settled_as(Abandonment(delay_ms=0)),
    "abandon later": settled_as(Abandonment(delay_ms=5_000), ValueError("x")),
    "abandon with backoff": settled_as(Abandonment(), ValueError("x")),
    "reject": settled_as(Rejection(reason="R"), "because"),
    "renew": renew,
}


@pytest.fixture(params=[0, 3_600], ids=["deleting", "retaining"])
def fenced_queue(clock, make_queue, request):
    """Either way of completing has its own statement, and each its own fence."""
    return make_queue("jobs", retain_completed=request.param)


@pytest.fixture
def message(fenced_queue):
    return enqueue_and_claim(fenced_queue)


def forged(message, **changes):
    """The same instance with another lease in it."""
    other = copy(message)
    for name, value in changes.items():
        setattr(other, name, value)
    return other


def wrong_queue(message, clock):
    return forged(message, queue="other")


def wrong_id(message, clock):
    return forged(message, id=message.pk + 1)


def id_of_another_live_message(message, clock):
    return forged(message, id=enqueue_and_claim(message.queue).pk)


def token_of_the_same_batch(message, clock):
    message.abandon(delay=0)
    enqueue(message.queue, None)
    first, second = Message.objects.claim(message.queue, limit=2)
    return forged(first, claimed_token=second.lock_token)


def token_of_an_earlier_delivery(message, clock):
    clock.advance(30)
    reap()
    claim_one(message.queue)
    return message


def empty_token(message, clock):
    return forged(message, claimed_token="")


def token_in_other_letters(message, clock):
    other = forged(message, claimed_token=message.lock_token.upper())
    assert other.claimed_token != message.claimed_token
    return other


def start_of_the_token(message, clock):
    return forged(message, claimed_token=message.lock_token[:32])


def wildcard_token(message, clock):
    return forged(message, claimed_token="%")


WRONG_LEASES = [
    wrong_queue,
    wrong_id,
    id_of_another_live_message,
    token_of_the_same_batch,
    token_of_an_earlier_delivery,
    empty_token,
    token_in_other_letters,
    start_of_the_token,
    wildcard_token,
]


def everything():
    return list(Message.objects.order_by("pk").values())


@pytest.mark.parametrize("verb", VERBS)
def test_the_right_lease_settles(clock, message, verb):
    before = everything()

    assert VERBS[verb](message)

    assert everything() != before


@pytest.mark.parametrize("verb", sorted(VERBS))
@pytest.mark.parametrize("make_wrong", WRONG_LEASES)
def test_a_wrong_lease_changes_nothing(clock, message, verb, make_wrong):
    wrong = make_wrong(message, clock)
    before = everything()

    assert not VERBS[verb](wrong)

    assert everything() == before


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize(
    ("after", "holds"),
    [(29.999, True), (30, False), (30.001, False), (9_999_999, False)],
    ids=["last millisecond", "exactly locked_until", "a millisecond later", "long after"],
)
def test_a_lease_is_over_at_its_deadline_whether_or_not_it_was_released(
    clock, message, verb, after, holds
):
    before = everything()
    clock.advance(after)

    assert VERBS[verb](message) is holds

    assert (everything() != before) is holds


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("first", ["complete", "abandon", "abandon later", "reject"])
def test_a_settled_message_cannot_be_settled_again(clock, message, verb, first):
    VERBS[first](message)
    before = everything()

    # The identical request may be told that it was carried out; nobody carries it out twice.
    assert not VERBS[verb](message) or verb == first

    assert everything() == before


@pytest.mark.parametrize("verb", VERBS)
def test_a_released_lease_cannot_settle(clock, message, verb):
    clock.advance(30)
    reap()
    before = everything()

    assert not VERBS[verb](message)

    assert everything() == before


@pytest.mark.parametrize(
    ("name", "settle_message"),
    [
        ("complete", lambda m: m.complete()),
        ("abandon", lambda m: m.abandon()),
        ("abandon", lambda m: m.abandon(delay=5, error=ValueError("x"))),
        ("reject", lambda m: m.reject("R")),
        ("renew", lambda m: m.renew()),
    ],
    ids=["complete", "abandon", "abandon with an error", "reject", "renew"],
)
def test_a_lost_lease_is_an_error_with_the_verb_in_it(clock, message, name, settle_message):
    clock.advance(30)
    before = everything()

    with pytest.raises(LockLost) as caught:
        settle_message(message)

    assert (caught.value.queue, caught.value.id) == ("jobs", message.pk)
    assert caught.value.verb == name
    assert everything() == before


@pytest.mark.parametrize(
    "settle_message",
    [lambda m: m.complete(), lambda m: m.abandon(), lambda m: m.reject("R"), lambda m: m.renew()],
    ids=["complete", "abandon", "reject", "renew"],
)
def test_a_message_that_was_never_claimed_has_no_lease_to_settle(clock, queue, settle_message):
    message = enqueue("jobs", None)

    with pytest.raises(LockLost):
        settle_message(message)

    assert state_of(message) == "active"


def test_a_second_delivery_is_settled_by_its_own_lease_only(clock, queue):
    first = enqueue_and_claim("jobs")
    clock.advance(30)
    reap()
    second = claim_one("jobs")

    with pytest.raises(LockLost):
        first.complete()

    assert second.delivery_count == 2
    second.complete()
    assert state_of(second) == "gone"


# complete


def test_completing_deletes_the_row(clock, queue):
    message = enqueue_and_claim("jobs")

    message.complete()

    assert state_of(message) == "gone"


def test_completing_keeps_the_row_where_the_queue_says_so(clock, make_queue):
    make_queue("jobs", retain_completed=60)
    message = enqueue_and_claim("jobs", {"a": 1})
    clock.advance(1)

    message.complete()

    kept = Message.objects.get(pk=message.pk)
    assert (kept.state, kept.finished_at, kept.data) == ("completed", clock.now, {"a": 1})
    assert (kept.lock_token, kept.locked_until, kept.delivery_count) == (None, None, 1)
    assert claim_ids("jobs") == []


def test_many_are_completed_in_one_go_and_each_is_reported(clock, queue, make_queue):
    make_queue("kept", retain_completed=60)
    for name in ("jobs", "jobs", "jobs", "kept", "kept"):
        enqueue(name, None)
    jobs, kept = Message.objects.claim("jobs", limit=3), Message.objects.claim("kept", limit=2)
    jobs[1].abandon(delay=0)
    kept[0].reject("R")
    unclaimed = enqueue("jobs", None)

    held = Message.objects.complete_many([*jobs, unclaimed, *kept])

    assert held == [True, False, True, False, False, True]
    assert [state_of(message) for message in [*jobs, unclaimed, *kept]] == [
        "gone",
        "active",
        "gone",
        "active",
        "dead_lettered",
        "completed",
    ]


def test_none_are_completed_without_fuss(clock, queue):
    assert Message.objects.complete_many([]) == []


def test_a_stale_delivery_beside_the_live_one_of_the_same_message_is_told_apart(clock, queue):
    stale = enqueue_and_claim("jobs")
    clock.advance(30)
    reap()
    live = claim_one("jobs")

    assert Message.objects.complete_many([stale, live]) == [False, True]
    assert state_of(live) == "gone"


# abandon


def test_abandoning_without_delay_makes_it_active_at_once(clock, queue):
    message = enqueue_and_claim("jobs")
    clock.advance(1)

    message.abandon(delay=0)

    again = Message.objects.get(pk=message.pk)
    assert (again.state, again.visible_at, again.delivery_count) == ("active", clock.now, 1)
    assert (again.lock_token, again.locked_by, again.locked_at, again.locked_until) == (None,) * 4
    assert (again.errors, again.dead_letter_reason, again.finished_at) == (None, None, None)
    assert claim_one("jobs").delivery_count == 2


@pytest.mark.parametrize("delay", [5, timedelta(seconds=5)])
def test_abandoning_with_delay_schedules_it_until_then(clock, queue, delay):
    message = enqueue_and_claim("jobs")

    message.abandon(delay=delay)

    again = Message.objects.get(pk=message.pk)
    assert (again.state, again.visible_at) == ("scheduled", clock.now + timedelta(seconds=5))
    clock.advance(4.999)
    assert activate() == 0
    clock.advance(0.001)
    assert activate() == 1
    assert claim_one("jobs").pk == message.pk


def test_abandoning_without_a_word_backs_off_exponentially(clock, make_queue):
    make_queue("jobs", backoff_base=10, backoff_max=25, max_delivery_count=100)
    message = enqueue_and_claim("jobs")
    waits = []
    for _ in range(5):
        message.abandon()
        again = Message.objects.get(pk=message.pk)
        waits.append((again.visible_at - clock.now).total_seconds())
        clock.advance(25)
        activate()
        message = claim_one("jobs")

    bounds = [(5, 10), (10, 20), (12.5, 25), (12.5, 25), (12.5, 25)]
    for wait, (least, most) in zip(waits, bounds, strict=True):
        assert least <= wait <= most


def test_a_queue_without_backoff_gives_it_back_at_once(clock, make_queue):
    make_queue("jobs", backoff_base=0)
    message = enqueue_and_claim("jobs")

    message.abandon()

    assert state_of(message) == "active"


@pytest.mark.parametrize("delay", [-1, float("nan"), 10**12])
def test_a_delay_out_of_range_is_refused_and_the_lease_still_holds(clock, queue, delay):
    message = enqueue_and_claim("jobs")

    with pytest.raises(ValueError, match="delay"):
        message.abandon(delay=delay)

    message.complete()


@pytest.mark.parametrize(("own", "queues", "bound"), [(None, 2, 2), (1, 5, 1), (5, 1, 5)])
def test_the_last_delivery_ends_in_the_dead_letters(clock, make_queue, own, queues, bound):
    make_queue("jobs", max_delivery_count=queues)
    enqueue("jobs", None, **({} if own is None else {"max_delivery_count": own}))
    for _ in range(bound - 1):
        claim_one("jobs").abandon(delay=0)
    last = claim_one("jobs")
    clock.advance(1)

    last.abandon(delay=3_600, error=ValueError("no article 17"))

    dead = DeadLetter.objects.get(pk=last.pk)
    assert (dead.delivery_count, dead.finished_at) == (bound, clock.now)
    assert dead.visible_at == clock.now
    assert dead.dead_letter_reason == "MaxDeliveryCountExceeded"
    assert dead.dead_letter_description == "no article 17"
    assert (dead.lock_token, dead.locked_by, dead.locked_until) == (None, None, None)
    assert claim_ids("jobs") == []


def test_a_dead_letter_without_an_error_says_how_often_it_was_abandoned(clock, make_queue):
    make_queue("jobs", max_delivery_count=1)
    message = enqueue_and_claim("jobs")

    message.abandon()

    assert DeadLetter.objects.get(pk=message.pk).dead_letter_description == "abandoned 1 times"


def test_the_error_is_remembered_with_its_delivery(clock, queue):
    enqueue("jobs", None)
    message = claim_one("jobs", worker="host:1")
    started = clock.now_ms()
    clock.advance(2)
    try:
        raise ValueError("no article 17")
    except ValueError as error:
        message.abandon(delay=0, error=error)

    (entry,) = Message.objects.get(pk=message.pk).errors
    assert entry["class"] == "builtins.ValueError"
    assert entry["message"] == "no article 17"
    assert "test_settle.py" in entry["traceback"]
    assert (entry["delivery"], entry["worker"]) == (1, "host:1")
    assert (entry["started_at"], entry["failed_at"]) == (started, clock.now_ms())


def test_the_last_twenty_errors_are_remembered_oldest_first(clock, make_queue):
    make_queue("jobs", max_delivery_count=100)
    enqueue("jobs", None)
    for number in range(25):
        message = claim_one("jobs")
        message.abandon(delay=0, error=f"failure {number}")

    errors = Message.objects.get(pk=message.pk).errors
    assert [entry["message"] for entry in errors] == [f"failure {n}" for n in range(5, 25)]
    assert [entry["delivery"] for entry in errors] == list(range(6, 26))


class BrokenStr(Exception):
    def __str__(self):
        raise RuntimeError("no str")


AWKWARD = [
    ValueError("a\0b"),
    ValueError("a\ud800b"),
    ValueError("x" * 10_000_000),
    BrokenStr(),
    "a\0b",
    "a\ud800b",
    "",
    SystemExit(),
]


@pytest.mark.parametrize("error", AWKWARD, ids=range(len(AWKWARD)))
@pytest.mark.parametrize("verb", ["abandon", "reject", "last abandon"])
def test_no_error_is_so_awkward_that_it_stops_a_settle(clock, make_queue, error, verb):
    make_queue("jobs", max_delivery_count=1 if verb == "last abandon" else 10)
    message = enqueue_and_claim("jobs")

    if verb == "reject":
        message.reject("R", error=error)
    else:
        message.abandon(delay=0, error=error)

    stored = Message.objects.get(pk=message.pk)
    assert len(stored.errors) == 1
    assert len(str(stored.errors)) < 30_000
    assert stored.state == ("active" if verb == "abandon" else "dead_lettered")


# reject


def test_rejecting_dead_letters_at_once_with_reason_and_description(clock, queue):
    message = enqueue_and_claim("jobs", {"article": 17})
    clock.advance(1)

    message.reject("UnknownArticle", "no article 17", error=KeyError(17))

    dead = DeadLetter.objects.get(pk=message.pk)
    assert (dead.dead_letter_reason, dead.dead_letter_description) == (
        "UnknownArticle",
        "no article 17",
    )
    assert (dead.delivery_count, dead.finished_at, dead.data) == (1, clock.now, {"article": 17})
    assert (dead.lock_token, dead.locked_by, dead.locked_at, dead.locked_until) == (None,) * 4
    assert dead.errors[0]["class"] == "builtins.KeyError"


def test_a_rejection_after_failures_keeps_their_errors(clock, queue):
    enqueue_and_claim("jobs").abandon(delay=0, error="first")
    message = claim_one("jobs")

    message.reject("R", error="second")

    errors = DeadLetter.objects.get(pk=message.pk).errors
    assert [entry["message"] for entry in errors] == ["first", "second"]


def test_a_rejection_remembers_the_last_twenty_errors_too(clock, make_queue):
    make_queue("jobs", max_delivery_count=100)
    enqueue("jobs", None)
    for number in range(22):
        claim_one("jobs").abandon(delay=0, error=f"failure {number}")
    message = claim_one("jobs")

    message.reject("R", error="last")

    errors = [entry["message"] for entry in DeadLetter.objects.get(pk=message.pk).errors]
    assert errors == [*(f"failure {number}" for number in range(3, 22)), "last"]


def test_a_rejection_without_an_error_adds_none(clock, queue):
    message = enqueue_and_claim("jobs")

    message.reject("R")

    dead = DeadLetter.objects.get(pk=message.pk)
    assert (dead.errors, dead.dead_letter_description) == (None, "")


@pytest.mark.parametrize(
    "text", ["a\0b", "a\ud800b", "x" * 10_000_000], ids=["NUL", "lone", "long"]
)
@pytest.mark.parametrize("place", ["reason", "description"])
def test_no_text_is_so_awkward_that_it_stops_a_rejection(clock, queue, text, place):
    message = enqueue_and_claim("jobs")

    message.reject(**{"reason": "R", place: text})

    dead = DeadLetter.objects.get(pk=message.pk)
    stored = getattr(dead, f"dead_letter_{place}")
    length = len(stored)
    assert 0 < length < 10_000
    assert "\0" not in stored


# what stays


@pytest.mark.parametrize("verb", ["abandon", "abandon later", "reject", "renew"])
def test_settling_never_touches_content_or_place(clock, queue, verb):
    message = enqueue(
        "jobs", {"a": 1}, priority=3, ttl=600, message_id="m", subject="s", properties={"a": "b"}
    )
    claimed = claim_one("jobs")
    before = row_of(message)

    assert VERBS[verb](claimed)

    after = row_of(message)
    for name in [
        "id",
        "queue",
        "priority",
        "line",
        "blocked",
        "enqueued_at",
        "expires_at",
        "delivery_count",
        "max_delivery_count",
        "message_id",
        "subject",
        "content_type",
        "properties",
        "body",
        "result",
    ]:
        assert after[name] == before[name], name


# what is told


@pytest.fixture
def told(monkeypatch):
    """The signals, in the order in which they were sent."""
    heard = []
    receivers = {}
    for name in ("message_completed", "message_abandoned", "message_dead_lettered"):
        signal = getattr(signals, name)

        def receive(sender, name=name, signal=None, **facts):
            heard.append((name, sender, facts))

        receivers[signal] = receive
        signal.connect(receive)
    yield heard
    for signal, receive in receivers.items():
        signal.disconnect(receive)


@pytest.mark.parametrize(
    ("settle_message", "name", "facts"),
    [
        (lambda m: m.complete(), "message_completed", {}),
        (
            lambda m: m.abandon(delay=5, error=ValueError("x")),
            "message_abandoned",
            {"error": "ValueError: x"},
        ),
        (
            lambda m: m.reject("R", "because"),
            "message_dead_lettered",
            {"reason": "R", "description": "because"},
        ),
    ],
    ids=["complete", "abandon", "reject"],
)
def test_an_outcome_is_told_once_after_the_commit(
    clock, queue, told, django_capture_on_commit_callbacks, settle_message, name, facts
):
    message = enqueue_and_claim("jobs")

    with django_capture_on_commit_callbacks(execute=True):
        settle_message(message)
        assert told == []

    ((heard, sender, said),) = told
    assert (heard, sender) == (name, Message)
    expected = {
        "queue": "jobs",
        "id": message.pk,
        "message_id": message.message_id,
        "using": "default",
        "delivery_count": 1,
        **facts,
    }
    assert {fact: said[fact] for fact in expected} == expected


def test_a_lost_lease_tells_nothing(clock, queue, told, django_capture_on_commit_callbacks):
    message = enqueue_and_claim("jobs")
    clock.advance(30)

    with django_capture_on_commit_callbacks(execute=True), pytest.raises(LockLost):
        message.complete()

    assert told == []


def test_a_rejection_needs_a_reason(queue):
    message = enqueue_and_claim(queue)

    with pytest.raises(ValueError, match="reason"):
        message.reject("")

    assert state_of(message) == "locked"


@pytest.mark.parametrize("verb", ["complete_many", "renew_many"])
def test_messages_of_another_database_are_refused_by_name(queue, verb):
    message = enqueue_and_claim(queue)

    with pytest.raises(ValueError, match="database 'default'"):
        getattr(Message.objects.db_manager("other"), verb)([message])
