"""The public verbs: which connection, at what time, in which transaction."""

from .verbs.base import M
from .verbs.claim import ClaimVerbs
from .verbs.dead_letters import DeadLetterManager
from .verbs.enqueue import EnqueueVerbs
from .verbs.find import LookVerbs
from .verbs.operations import SteerVerbs
from .verbs.queues import QueueManager
from .verbs.topics import SubscriptionManager


class MessageManager(EnqueueVerbs[M], ClaimVerbs[M], SteerVerbs[M], LookVerbs[M]):
    """Enqueue, claim, renew, settle; step in and look."""


__all__ = ["DeadLetterManager", "MessageManager", "QueueManager", "SubscriptionManager"]
