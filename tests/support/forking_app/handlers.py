"""A handler of each flavour that starts processes as its message says."""

import asyncio

from asgiref.sync import sync_to_async

from django_mqlite import handler
from django_mqlite.models import Message

from .ways import stand_by, take, take_in_coroutine


@handler("fork")
def fork(message: Message) -> None:
    take(message.data)


@handler("fork-atomic", atomic=True)
def fork_atomically(message: Message) -> None:
    take(message.data)


@handler("fork-async")
async def fork_in_a_loop(message: Message) -> None:
    await take_in_coroutine(message.data)


@handler("fork-thread")
async def fork_in_a_thread(message: Message) -> None:
    await sync_to_async(take)(message.data)


@handler("fork-to-thread")
async def fork_in_a_thread_of_asyncio(message: Message) -> None:
    await asyncio.to_thread(take, message.data)


@handler("stand-by")
async def stand_by_others(message: Message) -> None:
    await stand_by(message.data)
