"""The public verbs: which connection, at what time, in which transaction."""

from .verbs.base import M
from .verbs.claim import ClaimVerbs
from .verbs.dead_letters import DeadLetterManager
from .verbs.enqueue import EnqueueVerbs
from .verbs.find import FindVerbs
from .verbs.operations import OperationVerbs
from .verbs.queues import QueueManager
from .verbs.topics import SubscriptionManager


class MessageManager(EnqueueVerbs[M], ClaimVerbs[M], OperationVerbs[M], FindVerbs[M]):
    """Enqueue, claim, renew, settle; step in and look."""


__all__ = ["DeadLetterManager", "MessageManager", "QueueManager", "SubscriptionManager"]
