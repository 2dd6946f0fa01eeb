"""The manager of messages: every verb."""

from .claim import ClaimVerbs
from .enqueue import EnqueueVerbs
from .look import LookVerbs
from .steer import SteerVerbs


class MessageManager(EnqueueVerbs, ClaimVerbs, SteerVerbs, LookVerbs):
    """Enqueue, claim, renew, settle; step in and look."""
