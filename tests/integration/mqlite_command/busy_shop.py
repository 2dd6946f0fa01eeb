"""A database as an operator meets it: eight queues, in every state, with short and long values."""

from django_mqlite import timing
from django_mqlite.models import Message, Queue, Subscription
from django_mqlite.types import WorkerRecord
from django_mqlite.verbs.tallies import COMPLETED, FAILED
from django_mqlite.verbs.workers import register
from tests.support.verbs import claim_one, deferred

LONG = "imports-of-articles-from-the-warehouse-in-another-country"
QUEUES = {
    "emails": {},
    "orders": {"ordering_mode": "group_fifo"},
    "newsletter": {},
    "reports": {"retain_completed": 3_600},
    "thumbnails": {},
    "webhooks": {},
    "empty": {},
    LONG: {"ordering_mode": "strict_fifo"},
}
SUBJECTS = ("Order 17 was paid", "注文の確認 🐘 e\u0301", "s" * 200, "\x1b[2J two\nlines")
ERRORS = (KeyError("template_id"), ConnectionRefusedError(111, "Connection refused"), None)


def fill(clock):
    """Create the queues and their messages; the clock ends three minutes later."""
    for name, options in QUEUES.items():
        Queue.objects.create_queue(name, **options)
    for number, subject in enumerate(SUBJECTS):
        Message.objects.enqueue("orders", {"order": number}, group_id="customer-7", subject=subject)
        Message.objects.enqueue(LONG, {"text": subject * 10}, subject=subject, message_id=subject)
    Message.objects.enqueue_many("newsletter", range(1_234))
    Queue.objects.get(name="newsletter").pause()
    for error in ERRORS:
        Message.objects.enqueue("emails", {"to": "a@example.com"}, subject="Welcome")
        claim_one("emails").reject("NotDelivered", "550 no such user", error=error)
        Message.objects.enqueue("webhooks", {"url": "https://example.com"})
        claim_one("webhooks").abandon(delay=600, error=error)
    Message.objects.enqueue("reports", None)
    claim_one("reports").complete()
    Message.objects.enqueue("reports", None, delay=86_400 * 3)
    deferred("thumbnails", data="photo.jpg")
    claim_one("orders")
    Subscription.objects.subscribe("prices", "stock", filter="")
    Subscription.objects.subscribe(
        "prices", LONG + "-2", filter="subject == 'paid' && " * 9 + "1 == 1"
    )
    for name, queues in (("web-1.example.com:4711:ab12", ("emails", "orders")), ("reaper", ())):
        register("default", worker(name, queues), deliveries(queues[:1]))
    clock.advance(180)
    register("default", worker("web-2:1:cd34", ("reports", LONG)), deliveries(["reports"]))


def worker(name, queues):
    return WorkerRecord(
        worker=name, host="web-1.example.com", boot_id="boot", pid_namespace=1, pid=4711,
        process_started_at=0.0, queues=queues, slots=8 if queues else 0, in_flight=len(queues),
        started_at=timing.now_ms() - 90_000_000,
    )  # fmt: skip


def deliveries(queues):
    minute = timing.now_ms() // 60_000
    counts = [[minute, COMPLETED, 8_211], [minute, FAILED, 14]]
    return {"minutes": dict.fromkeys(queues, counts)}
