"""The same as tasks."""

from django_mqlite.task_backend.compat import task

from .ways import take, take_in_coroutine


@task()
def fork(order):
    take(order)


@task()
async def fork_in_a_loop(order):
    await take_in_coroutine(order)
