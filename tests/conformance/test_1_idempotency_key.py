"""1.2 The idempotency key of a message."""

import pytest

from django_mqlite import enqueue, enqueue_many
from django_mqlite.models import DeadLetter, Message
from django_mqlite.verbs.database_file import back_up
from tests.support.engines import database
from tests.support.files import create_database
from tests.support.verbs import claim_one


@pytest.mark.django_db
@pytest.mark.rule("1.2")
def test_every_delivery_of_a_message_has_the_same_key(clock, queue):
    key = enqueue("jobs", "a").idempotency_key

    clock.advance(1)
    first = claim_one("jobs")
    first.abandon(delay=0)
    clock.advance(1)
    second = claim_one("jobs")
    second.reject("Broken")
    dead = DeadLetter.objects.get()
    DeadLetter.objects.redrive([dead.pk])
    third = claim_one("jobs")

    keys = {message.idempotency_key for message in (first, second, dead, third)}
    assert keys == {key}


@pytest.mark.django_db
@pytest.mark.rule("1.2")
def test_each_message_has_another_key(clock, queue, make_queue):
    make_queue("other")
    messages = [*enqueue_many("jobs", ["a", "a"]), enqueue("jobs", "a"), enqueue("other", "a")]
    messages[0].refresh_from_db()
    claim_one("other").reject("Broken")
    DeadLetter.objects.redrive([messages[-1].pk], into="jobs")
    copy = Message.objects.latest("pk")

    assert len({message.idempotency_key for message in (*messages, copy)}) == 5


@pytest.mark.rule("1.2")
def test_id_that_is_used_again_after_a_restore_has_another_key(clock, tmp_path, django_db_blocker):
    path, backup = create_database(tmp_path / "shop", jobs="standard"), tmp_path / "backup"
    with django_db_blocker.unblock(), database("shop", path), database("restored", backup):
        handled_again = enqueue("jobs", "before the backup", using="shop")
        back_up("shop", backup, lambda done, total: None)
        clock.advance(60)
        lost = enqueue("jobs", "after the backup", using="shop")

        clock.advance(60)
        again = Message.objects.using("restored").get()
        new = enqueue("jobs", "after the restore", using="restored")

        assert again.idempotency_key == handled_again.idempotency_key
        assert new.pk == lost.pk
        assert new.idempotency_key != lost.idempotency_key
