"""The public verbs: which connection, at what time, in which transaction."""

from .dead_letters import DeadLetterManager
from .messages import MessageManager
from .queues import QueueManager
from .subscriptions import SubscriptionManager

__all__ = ["DeadLetterManager", "MessageManager", "QueueManager", "SubscriptionManager"]
