"""Each statement writes its own columns and no others."""

import pytest

from django_mqlite import enqueue
from django_mqlite.models import DeadLetter, Message
from django_mqlite.types import Abandonment
from django_mqlite.verbs import sweeps
from tests.support.verbs import activate, claim_one, reap, row_of

pytestmark = pytest.mark.django_db

OPTIONS = {"priority": 3, "ttl": 600, "message_id": "m", "subject": "s", "properties": {"a": "b"}}
LEASE = {"state", "lock_token", "locked_by", "locked_at", "locked_until"}
ERROR = {"errors", "error_class"}
DEATH = {"state", "finished_at", "dead_letter_reason", "dead_letter_description"}


def active(clock):
    return enqueue("jobs", {"a": 1}, **OPTIONS)


def scheduled(clock):
    return enqueue("jobs", {"a": 1}, delay=5, **OPTIONS)


def due(clock):
    message = scheduled(clock)
    clock.advance(5)
    return message


def claimed(clock):
    active(clock)
    return claim_one("jobs", worker="w")


def expired(clock):
    message = claimed(clock)
    clock.advance(30)
    return message


def dead(clock):
    message = claimed(clock)
    message.reject("R", "because")
    return message


CASES = {
    "claim": (active, lambda m: claim_one("jobs", worker="w"), LEASE | {"delivery_count"}),
    "renew": (claimed, lambda m: m.renew(), {"locked_until"}),
    "complete": (
        claimed,
        lambda m: m.complete(),
        LEASE - {"locked_by", "locked_at"} | {"finished_at", "kept_until"},
    ),
    "abandon": (claimed, lambda m: m.abandon(delay=9), LEASE | {"visible_at"}),
    "abandon with an error": (
        claimed,
        lambda m: m.abandon(delay=0, error="x"),
        LEASE | {"visible_at", "errors"},
    ),
    "reject": (claimed, lambda m: m.reject("R", "because"), LEASE | DEATH),
    "defer": (claimed, lambda m: m.defer(), LEASE),
    "release": (expired, lambda m: reap(), LEASE | ERROR),
    "release by hand": (
        claimed,
        lambda m: Message.objects.release(m.pk, seen=m.lease_fingerprint),
        LEASE | ERROR,
    ),
    "interrupt": (
        claimed,
        lambda m: sweeps.interrupt("default", [m.lease], reason="stopped"),
        LEASE | ERROR | {"delivery_count", "interruptions"},
    ),
    "retry uncounted": (
        claimed,
        lambda m: Message.objects.settle(m, Abandonment(delay_ms=1, counts=False)),
        LEASE | {"visible_at", "delivery_count", "uncounted_retries", "errors"},
    ),
    "set progress": (claimed, lambda m: m.set_progress(0.5), {"progress"}),
    "discard": (claimed, lambda m: Message.objects.discard(m.pk), LEASE | DEATH | ERROR),
    "activate": (due, lambda m: activate(), {"state"}),
    "run now": (scheduled, lambda m: Message.objects.run_now(m.pk), {"state", "visible_at"}),
    "redrive": (
        dead,
        lambda m: DeadLetter.objects.redrive([m.pk]),
        DEATH | {"delivery_count", "visible_at", "expires_at", "errors"},
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_statement_writes_only_its_columns(clock, make_queue, case):
    make_queue("jobs", retain_completed=60)
    arrange, act, columns = CASES[case]
    message = arrange(clock)
    before = row_of(message)
    clock.advance(4)

    act(message)

    after = row_of(message)
    assert {name for name in before if before[name] != after[name]} == columns
