"""What can be done to one message from its page."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django.contrib.admin.models import CHANGE, DELETION
from django.utils.translation import gettext_lazy as _

from ..models import DeadLetter, Message
from ..types import State


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageVerb:
    """What is asked, done, said and logged. `permission` is a codename of ours."""

    name: str
    label: Any
    permission: str
    state: State
    act: Callable[[Message, str], bool]
    """What does it, given the fingerprint of the lease that was seen; whether it was done."""
    done: Any
    refused: Any
    log_flag: int
    log_text: str
    question: Any = None
    """Asked first on a page of its own; None where nothing is lost by a slip."""
    is_deletion: bool = False


def _redrive(message: Message, seen: str) -> bool:
    return DeadLetter.objects.redrive([message.pk]) == 1


def _purge(message: Message, seen: str) -> bool:
    return DeadLetter.objects.purge([message.pk]) == 1


def _cancel(message: Message, seen: str) -> bool:
    return Message.objects.cancel(message.pk)


def _run_now(message: Message, seen: str) -> bool:
    return Message.objects.run_now(message.pk)


def _release(message: Message, seen: str) -> bool:
    return Message.objects.release(message.pk, seen=seen)


VERBS = (
    MessageVerb(
        name="redrive",
        label=_("Redrive"),
        permission="redrive_message",
        state=State.DEAD_LETTERED,
        act=_redrive,
        done=_("The dead letter is back at work."),
        refused=_("Not redriven: it is no dead letter any more."),
        log_flag=CHANGE,
        log_text="Redriven.",
    ),
    MessageVerb(
        name="purge",
        label=_("Purge"),
        permission="purge_message",
        state=State.DEAD_LETTERED,
        act=_purge,
        done=_("The dead letter is gone for good."),
        refused=_("Not purged: it is no dead letter any more, or another table refers to it."),
        log_flag=DELETION,
        log_text="Purged.",
        question=_("Delete this dead letter for good? It cannot be brought back."),
        is_deletion=True,
    ),
    MessageVerb(
        name="run_now",
        label=_("Run now"),
        permission="change_message",
        state=State.SCHEDULED,
        act=_run_now,
        done=_("The message is due now."),
        refused=_("Nothing was changed: it is not scheduled any more."),
        log_flag=CHANGE,
        log_text="Made due now.",
    ),
    MessageVerb(
        name="cancel",
        label=_("Cancel"),
        permission="delete_message",
        state=State.SCHEDULED,
        act=_cancel,
        done=_("The message is cancelled and gone."),
        refused=_("Not cancelled: only a scheduled message that was never delivered can be."),
        log_flag=DELETION,
        log_text="Cancelled.",
        question=_("Delete this scheduled message? It will never be delivered."),
        is_deletion=True,
    ),
    MessageVerb(
        name="release",
        label=_("Release the lease"),
        permission="release_message",
        state=State.LOCKED,
        act=_release,
        done=_("The lease is over and the message back in its queue."),
        refused=_("Not released: the lease that you saw is over, the message has moved on."),
        log_flag=CHANGE,
        log_text="Lease released.",
        question=_(
            "End this lease? If its worker is still at work on the message, the message is "
            "delivered a second time while the first delivery runs."
        ),
    ),
)
