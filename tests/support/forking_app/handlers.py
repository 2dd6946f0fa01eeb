"""A handler of each flavour that starts processes as its message says."""

from asgiref.sync import sync_to_async

from django_mqlite import handler
from django_mqlite.models import Message

from .ways import take


@handler("fork")
def fork(message: Message) -> None:
    take(message.data)


@handler("fork-atomic", atomic=True)
def fork_atomically(message: Message) -> None:
    take(message.data)


@handler("fork-async")
async def fork_in_a_loop(message: Message) -> None:
    take(message.data)


@handler("fork-thread")
async def fork_in_a_thread(message: Message) -> None:
    await sync_to_async(take)(message.data)
