"""Commands for queues, subscriptions and workers."""

from argparse import ArgumentParser
from dataclasses import fields
from functools import partial
from typing import Any

from django.core.management.base import CommandError

from django_mqlite import timing
from django_mqlite.formatting import format_duration, format_limits
from django_mqlite.models import Queue, Subscription
from django_mqlite.timing import iso
from django_mqlite.types import QueueConfig, WorkerRecord
from django_mqlite.verbs.workers import is_live, registered_workers

from .arguments import Options, Subcommand, add_yes
from .output import (
    ERROR,
    NO_QUEUES,
    WARNING,
    Marked,
    Output,
    age,
    ago,
    cell,
    plural,
    require_terminal,
)
from .table import Column, text_column

# queues

QUEUE_COLUMNS = {
    "queue": "name", "kind": "kind", "order": "ordering_mode", "lease": "lock_duration_ms",
    "deliveries": "max_delivery_count", "in flight": "max_in_flight", "rate": "rate",
    "paused": "paused",
}  # fmt: skip
CONFIGURATION = [field.name for field in fields(QueueConfig) if not field.name.startswith("rate_")]
ZERO = {
    "default_ttl_ms": "unlimited", "dedup_window_ms": "off", "retain_completed_ms": "none",
    "dlq_max_age_ms": "from the settings", "dlq_max_count": "from the settings",
    "dlq_max_bytes": "from the settings", "max_in_flight": "unlimited",
}  # fmt: skip
"""What 0 means for an option, if it is not the number."""


def _add_queues_arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("queue", nargs="?", metavar="QUEUE", help="show the configuration of this queue")
    add("--delete", action="store_true", help="delete the queue with all its messages")
    add_yes(parser)


def _queues(options: Options, output: Output) -> None:
    queues = Queue.objects.db_manager(options["database"])
    if options["delete"]:
        _delete_queue(options, output)
    elif options["queue"]:
        queue = queues.named(options["queue"])
        configuration = _configuration(queue)
        limits = queues.limits(queue.name)
        lines = [f"{_label(name)}: {_shown(queue, name)}" for name in configuration]
        lines += [f"now: {text}" for text in format_limits(limits, now=timing.now_ms())]
        text = "\n  ".join((queue.name, *lines))
        output.answer({"queue": queue.name, **configuration, "limits": limits.facts}, text)
    else:
        rows = list(queues.order_by("name"))
        output.answer_table(
            {"queues": [{"queue": queue.name, **_configuration(queue)} for queue in rows]},
            tuple(QUEUE_COLUMNS),
            [[_value(queue, name) for name in QUEUE_COLUMNS.values()] for queue in rows],
            empty=NO_QUEUES,
        )


def _configuration(queue: Queue) -> dict[str, Any]:
    configuration = {name: getattr(queue, name) for name in (*CONFIGURATION, "paused")}
    return {**configuration, "rate": None if queue.rate is None else str(queue.rate)}


def _value(queue: Queue, name: str) -> Any:
    match name:
        case "paused":
            return Marked(queue.paused or None, WARNING)
        case "max_in_flight" | "rate":
            return getattr(queue, name) or None
        case _:
            return _shown(queue, name)


def _label(name: str) -> str:
    return name.removesuffix("_ms").replace("_", " ")


def _shown(queue: Queue, name: str) -> str:
    value = getattr(queue, name)
    if name == "rate":
        return str(value or "unlimited")
    if name.startswith("dlq_") and value < 0:
        return "unlimited"
    if value == 0 and name in ZERO:
        return ZERO[name]
    return format_duration(value) if name.endswith("_ms") else cell(value)


def _delete_queue(options: Options, output: Output) -> None:
    if options["queue"] is None:
        raise CommandError("--delete needs the name of a queue.")
    queues = Queue.objects.db_manager(options["database"])
    queue = queues.named(options["queue"])
    queues.check_deletable(queue.name, everything=True)
    require_terminal(options)
    count = _messages_of(queue.name, options)
    output.confirm(
        f"Delete queue {queue.name} with {plural(count, 'message')}? This is permanent.", options
    )
    queues.delete_queue(queue.name, everything=True)
    output.answer({"queue": queue.name, "deleted": True}, f"Queue {queue.name} deleted.")


def _messages_of(queue: str, options: Options) -> int:
    stats = Queue.objects.db_manager(options["database"]).stats()
    return sum(sum(row.counts.values()) for row in stats if row.queue == queue)


# pause and resume


def _add_queues(parser: ArgumentParser) -> None:
    parser.add_argument("queues", nargs="+", metavar="QUEUE", help="names of the queues")


def _set_paused(options: Options, output: Output, *, paused: bool) -> None:
    """Pause or resume all queues, or none if one of them is unknown."""
    manager = Queue.objects.db_manager(options["database"])
    queues = [manager.named(name) for name in dict.fromkeys(options["queues"])]
    changed = {queue.name: manager.set_paused(queue, paused) for queue in queues}
    done = "paused" if paused else "resumed"
    unchanged = "was already paused" if paused else "was not paused"
    document = [
        {"queue": name, "paused": paused, "changed": was_changed}
        for name, was_changed in changed.items()
    ]
    text = [
        f"Queue {name} {done if was_changed else unchanged}."
        for name, was_changed in changed.items()
    ]
    output.answer({"queues": document}, "\n".join(text))


# subscriptions


def _add_subscribe_arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("topic", metavar="TOPIC", help="name of the topic; it needs no other setup")
    add("subscription", metavar="SUBSCRIPTION", help="name of the subscription and its queue")
    add(
        "--filter",
        metavar="EXPRESSION",
        help="CEL expression; '' matches every message (default: keep the filter, or '')",
    )


def _subscribe(options: Options, output: Output) -> None:
    topic, name = options["topic"], options["subscription"]
    subscription = Subscription.objects.db_manager(options["database"]).subscribe(
        topic, name, filter=options["filter"]
    )
    output.answer(
        {"topic": topic, "subscription": name, "filter": subscription.filter},
        f"Queue {name} subscribed to topic {topic}: {subscription.filter or 'every message'}",
    )


def _add_subscriptions_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("topic", nargs="?", metavar="TOPIC", help="default: all topics")


def _subscriptions(options: Options, output: Output) -> None:
    subscriptions = Subscription.objects.db_manager(options["database"])
    topic = options["topic"]
    rows = list(subscriptions.order_by("topic", "subscription"))
    if topic:
        rows = [row for row in rows if row.topic == topic]
    output.answer_table(
        {
            "subscriptions": [
                {"topic": row.topic, "subscription": row.subscription, "filter": row.filter}
                for row in rows
            ]
        },
        ("topic", "subscription", text_column("filter")),
        [(row.topic, row.subscription, row.filter or "every message") for row in rows],
        empty=f"Topic {topic} has no subscriptions." if topic else "There are no subscriptions.",
    )


def _add_unsubscribe_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("subscription", metavar="SUBSCRIPTION", help="name of the subscription")
    add_yes(parser)


def _unsubscribe(options: Options, output: Output) -> None:
    name = options["subscription"]
    subscriptions = Subscription.objects.db_manager(options["database"])
    if not subscriptions.filter(subscription=name).exists():
        raise CommandError(f"There is no subscription {name!r}.")
    require_terminal(options)
    count = _messages_of(name, options)
    output.confirm(
        f"Delete subscription {name} and its queue with {plural(count, 'message')}? "
        "This is permanent.",
        options,
    )
    deleted = subscriptions.unsubscribe(name)
    output.answer(
        {"subscription": name, "deleted": deleted},
        f"Subscription {name} deleted." if deleted else f"There is no subscription {name!r}.",
        failed=not deleted,
    )


# workers

WORKER_COLUMNS: tuple[Column | str, ...] = (
    "worker", "state", "seen", Column("busy", is_kept=True), text_column("queues"), "runs for",
)  # fmt: skip


def _worker_row(worker: WorkerRecord, *, now: int) -> list[Any]:
    live = is_live(worker, now=now)
    return [
        worker.worker,
        Marked("live", "") if live else Marked("lost", ERROR),
        ago(worker.seen_at),
        f"{worker.in_flight}/{worker.slots}" if worker.queues else None,
        ", ".join(worker.queues) or "none, reaps only",
        age(worker.started_at),
    ]


def _add_nothing(parser: ArgumentParser) -> None:
    """Add no arguments."""


def _workers(options: Options, output: Output) -> None:
    now = timing.now_ms()
    workers = registered_workers(Queue.objects.db_manager(options["database"]).database)
    output.answer_table(
        {
            "workers": [
                {
                    "worker": worker.worker,
                    "live": is_live(worker, now=now),
                    "host": worker.host,
                    "pid": worker.pid,
                    "queues": list(worker.queues),
                    "slots": worker.slots,
                    "in_flight": worker.in_flight,
                    "reaps": worker.reaps,
                    "started_at": iso(worker.started_at),
                    "seen_at": iso(worker.seen_at),
                }
                for worker in workers
            ]
        },
        WORKER_COLUMNS,
        [_worker_row(worker, now=now) for worker in workers],
        empty="No worker is registered.",
    )


# fmt: off
SUBCOMMANDS = (
    Subcommand("queues", "List the queues, show the configuration of one, or delete it.",
        _queues, _add_queues_arguments, "mqlite queues orders"),
    Subcommand("pause", "Stop claims from queues. Enqueueing and running handlers continue.",
        partial(_set_paused, paused=True), _add_queues, "mqlite pause orders emails"),
    Subcommand("resume", "Resume claims from paused queues.",
        partial(_set_paused, paused=False), _add_queues, "mqlite resume orders"),
    Subcommand("subscriptions", "List the subscriptions of a topic, or of all topics.",
        _subscriptions, _add_subscriptions_arguments, "mqlite subscriptions prices"),
    Subcommand("subscribe", "Subscribe a queue to a topic, or change the filter of a subscription.",
        _subscribe, _add_subscribe_arguments,
        "mqlite subscribe prices stock --filter 'subject == \"changed\"'"),
    Subcommand("unsubscribe", "Delete a subscription and its queue with all messages.",
        _unsubscribe, _add_unsubscribe_arguments, "mqlite unsubscribe stock"),
    Subcommand("workers", "List the registered workers, their queues and how busy they are.",
        _workers, _add_nothing, "mqlite workers"),
)
# fmt: on
