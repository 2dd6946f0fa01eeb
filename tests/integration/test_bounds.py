"""Numbers and sizes beyond those that SQLite or a message can hold."""

import pytest

from django_mqlite import enqueue, publish
from django_mqlite.models import DeadLetter, Message, Subscription
from tests.support.verbs import dead_letter

pytestmark = pytest.mark.django_db

INVALID_IDS = [2**63 - 1, 2**63, 2**64, 10**30, 0, -1, -(2**63), -(2**63) - 1, -(10**30)]


@pytest.mark.parametrize("id", INVALID_IDS)
def test_id_that_no_message_can_have_is_not_found(queue, id):
    waiting = Message.objects.enqueue(queue.name, 1, delay=60)
    dead = dead_letter(queue)

    assert Message.objects.cancel(id) is False
    assert Message.objects.run_now(id) is False
    assert Message.objects.release(id, seen="") is False
    assert Message.objects.explain(id).code == "never_enqueued"
    assert Message.objects.explain(id).facts["id"] == id
    assert f"never been a message #{id};" in Message.objects.explain(id).text
    assert DeadLetter.objects.redrive([id]) == 0
    assert DeadLetter.objects.redrive([id], into=queue.name) == 0
    assert DeadLetter.objects.purge([id]) == 0
    assert DeadLetter.objects.matching(queue.name, ids=[id]).count() == 0
    assert {waiting.pk, dead.pk} == set(Message.objects.values_list("pk", flat=True))


@pytest.mark.parametrize("after", INVALID_IDS)
def test_arrivals_after_an_id_that_no_message_can_have_are_all_or_none(queue, after):
    message = Message.objects.enqueue(queue.name, 1)

    ids = [arrival.pk for arrival in Message.objects.arrivals(after)]

    assert ids == ([message.pk] if after <= 0 else [])


@pytest.mark.parametrize("limit", [2**63 - 1, 2**63, 0, -1])
@pytest.mark.parametrize(
    "verb",
    [
        lambda queue, limit: Message.objects.peek(queue.name, limit=limit),
        lambda queue, limit: DeadLetter.objects.peek(queue.name, limit=limit),
        lambda queue, limit: Message.objects.find(limit=limit),
        lambda queue, limit: Message.objects.arrivals(0, limit=limit),
        lambda queue, limit: DeadLetter.objects.redrive_queue(queue.name, limit=limit),
        lambda queue, limit: DeadLetter.objects.purge_queue(queue.name, limit=limit),
    ],
    ids=["peek", "peek dead", "find", "arrivals", "redrive", "purge"],
)
def test_limit_below_one_or_beyond_the_database_is_refused(queue, verb, limit):
    if limit == 2**63 - 1:
        verb(queue, limit)
        return

    with pytest.raises(ValueError, match="limit must be between 1 and 9223372036854775807"):
        verb(queue, limit)


def properties_of(size):
    """Return properties that take `size` bytes as JSON, half of them in the name."""
    letters = size - len('{"ä":""}'.encode())
    return {"ä" + "n" * (letters // 2): "v" * (letters - letters // 2)}


def test_properties_beyond_64_kib_are_refused(queue):
    Subscription.objects.subscribe("orders", "stock")
    largest, too_large = properties_of(65_536), properties_of(65_537)

    assert Message.objects.enqueue(queue.name, 1, properties=largest).properties == largest
    for send, name in ((enqueue, queue.name), (publish, "orders")):
        with pytest.raises(ValueError, match="properties take 65,537 bytes as JSON"):
            send(name, 1, properties=too_large)

    assert Message.objects.count() == 1
