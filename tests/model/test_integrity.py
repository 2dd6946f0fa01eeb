"""Every message arrives, intact and within its delivery limit, although deliveries fail."""

import random
from collections import Counter
from hashlib import sha256
from typing import Any

import pytest
from django.db.models import Count

from django_mqlite import Draft, enqueue_many
from django_mqlite.models import DeadLetter, Message
from django_mqlite.worker.reaper import run_all

pytestmark = pytest.mark.django_db

MESSAGES = 300
BOUND = 3
LARGEST = 100 * 1024
MODES = {"loose": "standard", "groups": "group_fifo", "strict": "strict_fifo"}


def random_data(chance: random.Random) -> Any:
    """Bytes, text with every plane of Unicode, or JSON; from nothing to 100 KiB."""
    size = chance.choice([0, 1, chance.randint(2, 200), chance.randint(201, LARGEST)])
    match chance.randrange(3):
        case 0:
            return chance.randbytes(size)
        case 1:
            return "".join(chance.choice("a\n\0é€\U0001f40c") for _ in range(size // 4))
        case _:
            return {"n": chance.getrandbits(60), "text": "é" * (size // 4), "list": [None, 1.5]}


def hash_of(data: Any) -> str:
    """Of its type and its content: text that arrives as bytes has not arrived."""
    return sha256(repr(data).encode()).hexdigest()


def sent(data: Any, *, group: str) -> Draft:
    return Draft(data, properties={"sha256": hash_of(data)}, group_id=group)


class Consumer:
    """Handles messages, mostly badly, and keeps account of every delivery."""

    def __init__(self, clock, chance: random.Random) -> None:
        self.clock = clock
        self.chance = chance
        self.deliveries: Counter[int] = Counter()
        self.completed: list[int] = []

    def work(self, queue: str) -> None:
        """One round: claim some, end each in some way, let time pass, now and then clean up."""
        for message in Message.objects.claim(queue, limit=self.chance.randint(1, 20)):
            self.receive(message)
            self.end(message)
        self.clock.advance(self.chance.choice([0.1, 1, 5, 31]))
        if self.chance.random() < 0.5:
            run_all("default")
        if self.chance.random() < 0.2:
            self.redrive(queue)

    def receive(self, message: Message) -> None:
        assert message.properties["sha256"] == hash_of(message.data)
        self.deliveries[message.pk] += 1
        assert message.delivery_count == self.deliveries[message.pk] <= BOUND

    def end(self, message: Message) -> None:
        match self.chance.choices(
            ["complete", "abandon", "abandon later", "reject", "crash"], [5, 2, 1, 1, 2]
        ):
            case ["complete"]:
                message.complete()
                self.completed.append(message.pk)
            case ["abandon"]:
                message.abandon(delay=0, error=ValueError("again"))
            case ["abandon later"]:
                message.abandon(delay=self.chance.randint(1, 10))
            case ["reject"]:
                message.reject("Unlucky")
            case _:
                pass  # nobody settles it: its lease runs out

    def redrive(self, queue: str) -> None:
        dead = list(DeadLetter.objects.filter(queue=queue))
        assert DeadLetter.objects.redrive([message.pk for message in dead]) == len(dead)
        for message in dead:
            del self.deliveries[message.pk]


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("queue", MODES)
def test_messages_arrive_intact_and_within_their_limit(clock, make_queue, queue, seed):
    make_queue(queue, ordering_mode=MODES[queue], max_delivery_count=BOUND, backoff_base=2)
    chance = random.Random(seed)
    consumer = Consumer(clock, chance)
    drafts = [sent(random_data(chance), group=f"g{n % 40}") for n in range(MESSAGES)]
    ids = [message.pk for message in enqueue_many(queue, drafts) if isinstance(message, Message)]

    rounds = 0
    while Message.objects.filter(queue=queue).exists():
        consumer.work(queue)
        rounds += 1
        assert rounds < 40 * MESSAGES, Message.objects.values("state").annotate(Count("pk"))

    assert sorted(consumer.completed) == ids
