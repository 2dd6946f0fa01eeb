"""The framework's signals about tasks that have ended, and what a dead letter has to do with it."""

import logging
import sys
from threading import Thread
from typing import TYPE_CHECKING, Any

from django.apps import apps
from django.db import connections

from .. import signals as messages
from ..content import TASK
from ..task_facts import NotATask
from .compat import signals
from .errors import UnknownTask
from .results import result_of

if TYPE_CHECKING:
    from ..models import Message

logger = logging.getLogger("django_mqlite.tasks")


def tell_finished(message: "Message", exception: BaseException | None = None) -> None:
    """Send task_finished with the result that has just been committed.

    It is sent while the exception that the task has failed of is handled, as the framework's own
    backends do it: its log, and whoever listens to that, finds the traceback there.
    A task that this code does not know has no TaskResult; the log has a line about its message.
    """
    try:
        result = result_of(message)
    except (UnknownTask, NotATask) as error:
        logger.warning("task_finished is not sent for message #%s: %s", message.pk, error)
        return
    except Exception:  # what else there is to be told after this commit must not be lost
        logger.exception("task_finished is not sent for message #%s", message.pk)
        return
    try:
        if exception is not None:
            raise exception
    except BaseException:  # noqa: BLE001 - the one that has been handed over, and no other
        _send(result)
    else:
        _send(result)


def _send(result: Any) -> None:
    signals.task_finished.send_robust(type(result.task.get_backend()), task_result=result)


def tell_failed(
    *,
    message_id: int,
    using: str,
    content_type: str | None,
    exception: BaseException | None,
    **facts: Any,
) -> None:
    """A message is a dead letter, whoever made it one: a worker, a reaper, a reject by hand."""
    if content_type != TASK:
        return
    model: type[Message] = apps.get_model("django_mqlite", "Message")
    dead = model.objects.using(using).filter(pk=message_id).first()
    if dead is None:
        return
    if (dead.subject or "").rpartition(".")[0] in sys.modules:
        tell_finished(dead, exception)
    else:  # its import may take its time, or for ever, and who tells this has others to look after
        Thread(
            target=_tell_apart, args=(dead, exception), name="mqlite-tells-apart", daemon=True
        ).start()


def _tell_apart(message: "Message", exception: BaseException | None) -> None:
    try:
        tell_finished(message, exception)
    finally:
        connections.close_all()


def connect() -> None:
    """Listen for dead letters; connecting again changes nothing."""
    messages.message_dead_lettered.connect(tell_failed, dispatch_uid="django_mqlite.tasks")
