"""The handler of task messages: run the task, store its result and send its signals."""

import json
import logging
import sys
from dataclasses import dataclass, replace
from functools import partial
from inspect import iscoroutinefunction
from threading import Thread
from typing import TYPE_CHECKING, Any

from django.apps import apps
from django.db import connections
from django.dispatch import receiver

from ..conf import get_settings
from ..exceptions import DeadLettered, Discarded
from ..guard import call_guarded
from ..handlers import Handler, check_has_run
from ..message import TASK, encode_json
from ..outcomes import retry_policy
from ..signals import message_dead_lettered
from ..task_facts import NotATask, task_facts
from ..types import Completion, HandlerResult, Rejection
from .compat import ReturnValueRefused, UnknownTask, normalize_json, signals
from .options import options_of, stored_options
from .results import MqliteTaskContext, registered_task, result_from, result_of, task_of

if TYPE_CHECKING:
    from ..models import Message

logger = logging.getLogger("django_mqlite.tasks")


def send_task_finished(message: "Message", exception: BaseException | None = None) -> None:
    """Send task_finished with the result that has just been committed.

    Send it while the task's exception is being handled, like the framework's own backends, because
    the framework's log takes the traceback from there. A task that is not in this code has no
    TaskResult, so the signal is not sent and a warning is logged.
    """
    try:
        result = result_of(message)
    except (UnknownTask, NotATask) as error:
        logger.warning("task_finished is not sent for message #%s: %s", message.pk, error)
        return
    except Exception:  # other actions after this commit must still run
        logger.exception("task_finished is not sent for message #%s", message.pk)
        return
    sender = type(result.task.get_backend())
    send = partial(signals.task_finished.send_robust, sender, task_result=result)
    try:
        if exception is not None:
            raise exception
    except BaseException as error:  # noqa: BLE001 - only `exception` is raised here
        _, _, traceback = sys.exc_info()
        error.with_traceback(traceback and traceback.tb_next)  # without the frame of this function
        send()
    else:
        send()


@receiver(message_dead_lettered, dispatch_uid="django_mqlite.tasks")
def send_finished_for_dead_letter(
    *,
    id: int,
    using: str,
    content_type: str | None,
    reason: str,
    description: str,
    exception: BaseException | None,
    **facts: Any,
) -> None:
    """Send task_finished for a message dead-lettered by a worker, the reaper or an operator."""
    if content_type != TASK:
        return
    model: type[Message] = apps.get_model("django_mqlite", "Message")
    letter = model.objects.using(using).filter(pk=id).first()
    if letter is None:
        return
    if exception is None:  # a log that expects an exception would report "NoneType: None"
        kind = Discarded if reason == "Discarded" else DeadLettered
        exception = kind(f"{reason}: {description}")
    if (letter.subject or "").rpartition(".")[0] in sys.modules:
        send_task_finished(letter, exception)
    else:  # the import could block the thread that settles messages
        Thread(
            target=_send_in_thread,
            args=(letter, exception),
            name="mqlite-task-finished",
            daemon=True,
        ).start()


def _send_in_thread(message: "Message", exception: BaseException | None) -> None:
    try:
        send_task_finished(message, exception)
    finally:
        connections.close_all()


def handler_of(message: "Message") -> Handler:
    """Return the handler of a task's message: a function, or a coroutine for an async task."""
    return call_guarded(
        lambda: _handler_of(message),
        lambda error: Handler(queue=message.queue, function=run),  # which raises what is wrong
    )


def _handler_of(message: "Message") -> Handler:
    task = registered_task(message.subject or "")
    options = replace(options_of(task), **stored_options(message))
    return Handler(
        queue=message.queue,
        function=run_async if iscoroutinefunction(task.func) else run,
        atomic=bool(options.atomic),
        retries=retry_policy(options.retry_on, options.give_up_on, options.backoff),
    )


def run(message: "Message") -> HandlerResult:
    """Run the message's task in this thread. Raises UnknownTask or NotATask before it starts."""
    attempt = Attempt.of(message)
    signals.task_started.send_robust(attempt.sender, task_result=attempt.result)
    value = attempt.task.func(*attempt.args, **attempt.kwargs)
    check_has_run(value)
    return attempt.succeeded(value)


async def run_async(message: "Message") -> HandlerResult:
    """Run the message's coroutine task. A cancellation fails the attempt."""
    attempt = Attempt.of(message)
    await signals.task_started.asend_robust(attempt.sender, task_result=attempt.result)
    value = await attempt.task.func(*attempt.args, **attempt.kwargs)
    check_has_run(value)
    return attempt.succeeded(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One run of a task, from its message to the outcome."""

    message: "Message"
    task: Any
    result: Any
    sender: type
    retain_ms: int

    @classmethod
    def of(cls, message: "Message") -> "Attempt":
        """Return the attempt for this delivery. Raise UnknownTask or NotATask.

        Invalid settings raise here, before the task runs.
        """
        facts = task_facts(message)
        task = task_of(facts)
        backend = task.get_backend()
        return cls(
            message=message,
            task=task,
            result=result_from(facts, task),
            sender=type(backend),
            retain_ms=backend.result_ttl_ms,
        )

    @property
    def args(self) -> list[Any]:
        if not self.task.takes_context:
            return list(self.result.args)
        context = MqliteTaskContext(task_result=self.result, message=self.message)
        return [context, *self.result.args]

    @property
    def kwargs(self) -> dict[str, Any]:
        kwargs: dict[str, Any] = self.result.kwargs
        return kwargs

    def succeeded(self, value: Any) -> HandlerResult:
        """Store the return value, and send task_finished after commit."""
        try:
            encoded = encoded_value(value)
        except ReturnValueRefused as error:
            rejection = Rejection(reason=error.reason, description=error.description)
            return HandlerResult(outcome=rejection, error=error)
        self.message.result = json.loads(encoded)
        self.message.on_completed = partial(send_task_finished, self.message)
        return HandlerResult(outcome=Completion(result=encoded, retain_ms=self.retain_ms))


def encoded_value(value: Any) -> str:
    """Return the task's return value as JSON, normalized as in the framework's own backends.

    Raise ReturnValueRefused if it is not JSON or exceeds the size limit.
    """
    try:
        encoded = encode_json(normalize_json(value), "the return value")
    except Exception as error:  # methods of the value can raise anything
        raise ReturnValueRefused(f"{type(error).__name__}: {error}") from error
    limit = get_settings().max_body_bytes
    if len(encoded.encode()) > limit:
        raise ReturnValueRefused(
            f"it is {len(encoded.encode()):,} bytes long, over the limit of {limit:,}. Store it "
            "elsewhere and return a reference, or raise MQLITE['MAX_BODY_BYTES']."
        )
    return encoded
