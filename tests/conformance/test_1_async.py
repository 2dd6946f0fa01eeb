"""Every verb has an async twin, and in an event loop the verb names it."""

import asyncio
import inspect
from functools import partial

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.core.exceptions import SynchronousOnlyOperation
from django.db import transaction
from django.http import JsonResponse
from django.test import AsyncClient
from django.urls import path

import django_mqlite
from django_mqlite import (
    LockLost,
    TopicNotFound,
    aenqueue,
    aenqueue_many,
    apublish,
    handlers,
    recurring,
)
from django_mqlite.models import Message, Schedule, Subscription
from django_mqlite.testing import drain
from django_mqlite.types import State
from tests.support.steps import QUEUE, work
from tests.support.verbs import claim_one

pytestmark = pytest.mark.rule("1.10")

MANY = 200

MANAGER_VERBS = [
    ("enqueue", ("jobs", 1), {}),
    ("enqueue_many", ("jobs", [1]), {}),
    ("publish", ("prices", 1), {}),
    ("publish_many", ("prices", [1]), {}),
    ("claim", ("jobs",), {}),
    ("claim_deferred", ("jobs", [1]), {}),
    ("claim_and_delete", ("jobs",), {}),
    ("complete_many", ([],), {}),
    ("renew_many", ([],), {}),
    ("cancel", (1,), {}),
    ("run_now", (1,), {}),
    ("release", (1,), {"seen": "x"}),
    ("discard", (1,), {}),
    ("discard_many", ([1],), {}),
    ("activate", (1,), {}),
    ("activate_many", ([1],), {}),
    ("explain", (1,), {}),
]
MESSAGE_VERBS = [
    ("complete", (), {}),
    ("abandon", (), {}),
    ("reject", ("Invalid",), {}),
    ("defer", (), {}),
    ("renew", (), {}),
    ("set_progress", (0.5,), {}),
    ("cancel", (), {}),
    ("explain", (), {}),
]


SCHEDULE_VERBS = [
    ("statuses", (), {}),
    ("status", ("s",), {}),
    ("pause", ("s",), {}),
    ("resume", ("s",), {}),
    ("run_now", ("s",), {}),
]


@pytest.fixture
def schedule(settings, queue, monkeypatch):
    monkeypatch.setattr(recurring, "_declared", {})
    settings.MQLITE = {"SCHEDULES": {"s": {"every": 60, "queue": "jobs"}}}


def own_twins(cls):
    """Return the async methods that the package defines, without Django's own."""
    return {
        name
        for name in dir(cls)
        if inspect.iscoroutinefunction(method := getattr(cls, name))
        and method.__module__.startswith("django_mqlite")
    }


@pytest.mark.parametrize(
    ("cls", "verbs"),
    [
        (type(Message.objects), MANAGER_VERBS),
        (type(Schedule.objects), SCHEDULE_VERBS),
        (Message, MESSAGE_VERBS),
    ],
)
def test_tables_of_this_module_name_every_async_twin(cls, verbs):
    assert own_twins(cls) == {f"a{name}" for name, _, _ in verbs}


@pytest.mark.parametrize(("name", "args", "kwargs"), MANAGER_VERBS)
def test_manager_verb_in_an_event_loop_names_its_twin(queue, name, args, kwargs):
    async def call():
        getattr(Message.objects, name)(*args, **kwargs)

    with pytest.raises(SynchronousOnlyOperation, match=rf"^{name}\(\) .*`await a{name}\(\)`"):
        async_to_sync(call)()


@pytest.mark.parametrize(("name", "args", "kwargs"), MESSAGE_VERBS)
def test_message_verb_in_an_event_loop_names_its_twin(queue, name, args, kwargs):
    Message.objects.enqueue("jobs", 1)
    message = claim_one("jobs")

    async def call():
        getattr(message, name)(*args, **kwargs)

    with pytest.raises(SynchronousOnlyOperation, match=rf"^{name}\(\) .*`await a{name}\(\)`"):
        async_to_sync(call)()
    message.complete()


@pytest.mark.parametrize(("name", "args", "kwargs"), SCHEDULE_VERBS)
def test_schedule_verb_in_an_event_loop_names_its_twin(schedule, name, args, kwargs):
    async def call():
        getattr(Schedule.objects, name)(*args, **kwargs)

    with pytest.raises(SynchronousOnlyOperation, match=rf"^{name}\(\) .*`await a{name}\(\)`"):
        async_to_sync(call)()


def test_async_twins_control_a_schedule(schedule, clock):
    async def scenario():
        assert await Schedule.objects.apause("s")
        assert (await Schedule.objects.astatus("s")).paused
        message = await Schedule.objects.arun_now("s")
        assert await Schedule.objects.aresume("s")
        assert [status.last_message for status in await Schedule.objects.astatuses()] == [
            message.pk
        ]

    async_to_sync(scenario)()


@pytest.mark.parametrize(
    ("name", "args"),
    [("enqueue", ("jobs", 1)), ("enqueue_many", ("jobs", [1])), ("publish", ("prices", 1))],
)
def test_shortcut_in_an_event_loop_names_its_twin(queue, name, args):
    async def call():
        getattr(django_mqlite, name)(*args)

    with pytest.raises(SynchronousOnlyOperation, match=rf"`await a{name}\(\)`"):
        async_to_sync(call)()


def test_async_twins_do_what_the_verbs_do(queue, clock):
    Subscription.objects.subscribe("prices", "stock")

    async def scenario():
        first = await aenqueue("jobs", 1, delay=60)
        second, third = await aenqueue_many("jobs", [2, 3])
        (copy,) = await apublish("prices", {"article": 7})
        assert (await Message.objects.aclaim_and_delete("stock"))[0].pk == copy.pk
        assert await Message.objects.arun_now(first.pk)
        scheduled = await Message.objects.aenqueue("jobs", 4, delay=60)
        assert await scheduled.acancel()
        messages = await Message.objects.aclaim("jobs", limit=3)
        assert [message.data for message in messages] == [1, 2, 3]
        assert await Message.objects.arenew_many(messages, 60) == [True] * 3
        await messages[0].arenew(90)
        await messages[0].adefer()
        (deferred,) = await Message.objects.aclaim_deferred("jobs", [first.pk])
        await deferred.acomplete()
        await messages[1].aabandon(delay=0)
        await messages[2].areject("Invalid", "no such article")
        (again,) = await Message.objects.aclaim("jobs")
        assert await Message.objects.arelease(again.pk, seen=again.lease_fingerprint)
        (last,) = await Message.objects.aclaim("jobs")
        assert (await last.aexplain()).text == (await Message.objects.aexplain(last.pk)).text
        assert await Message.objects.acomplete_many([last]) == [True]
        return second.pk, third.pk

    second, third = async_to_sync(scenario)()

    assert list(Message.objects.values_list("pk", "state")) == [(third, State.DEAD_LETTERED)]
    assert second < third


def test_async_twin_raises_the_errors_of_the_verb(queue):
    async def scenario():
        with pytest.raises(TopicNotFound):
            await apublish("prices", 1)
        await aenqueue("jobs", 1)
        (message,) = await Message.objects.aclaim("jobs")
        await message.acomplete()
        with pytest.raises(LockLost):
            await message.adefer()

    async_to_sync(scenario)()


def test_async_twin_joins_the_transaction_of_its_thread(queue):
    async def scenario():
        atomic = transaction.atomic()
        await sync_to_async(atomic.__enter__)()
        await aenqueue("jobs", 1)
        await sync_to_async(atomic.__exit__)(ValueError, ValueError("rolled back"), None)
        await aenqueue("jobs", 2)

    async_to_sync(scenario)()

    assert [message.data for message in Message.objects.all()] == [2]


def test_gathered_coroutines_store_claim_and_settle_each_message_once(queue):
    async def work(number):
        await aenqueue("jobs", number)
        (message,) = await Message.objects.aclaim("jobs")
        await message.acomplete()
        return message.data

    async def scenario():
        return await asyncio.gather(*(work(number) for number in range(MANY)))

    handled = async_to_sync(scenario)()

    assert sorted(handled) == list(range(MANY))
    assert not Message.objects.exists()


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("run", [work, partial(drain, QUEUE)], ids=["worker", "drain"])
def test_async_handler_settles_and_enqueues_with_the_twins(make_queue, monkeypatch, run):
    make_queue(QUEUE)
    Message.objects.enqueue_many(QUEUE, range(8))
    monkeypatch.setattr(handlers, "_handlers", {})
    handled = []

    @handlers.handler(QUEUE)
    async def handle(message):
        if message.data < 8:
            await aenqueue(QUEUE, message.data + 8)
        await message.acomplete()
        handled.append(message.data)

    run()

    assert sorted(handled) == list(range(16))
    assert not Message.objects.exists()


async def place_order(request):
    message = await aenqueue("jobs", {"order": 7})
    return JsonResponse({"id": message.pk})


urlpatterns = [path("orders/", place_order)]


def test_async_view_enqueues_with_the_twin(queue, settings):
    settings.ROOT_URLCONF = __name__

    response = async_to_sync(AsyncClient().post)("/orders/")

    assert response.json() == {"id": Message.objects.get().pk}
