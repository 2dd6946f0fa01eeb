"""The managers of the models: the public verbs of the package.

Each verb is a method of the class that a manager inherits from `django_mqlite.verbs`. A verb opens
a write transaction, or a savepoint in the caller's transaction, takes the time under the write
lock, executes the statements of the store, and sends signals after the commit.

Verbs run on the database that the routers choose for writing. `db_manager(alias)` chooses another.
"""

from django.db import models

from .types import State
from .verbs.base import M
from .verbs.claim import ClaimVerbs
from .verbs.dead_letters import DeadLetterVerbs
from .verbs.deletion import DeletionVerbs
from .verbs.enqueue import EnqueueVerbs
from .verbs.find import FindVerbs
from .verbs.keys import KeyVerbs
from .verbs.operations import OperationVerbs
from .verbs.queues import QueueVerbs
from .verbs.schedules import ScheduleVerbs
from .verbs.topics import TopicVerbs

__all__ = [
    "AccessKeyManager",
    "DeadLetterManager",
    "MessageManager",
    "QueueManager",
    "ScheduleManager",
    "SubscriptionManager",
]


class MessageManager(
    EnqueueVerbs[M], ClaimVerbs[M], OperationVerbs[M], DeletionVerbs[M], FindVerbs[M]
):
    """Enqueue, claim, settle and inspect messages: `Message.objects`.

    - Enqueue: enqueue(), enqueue_many(), publish(), publish_many()
    - Claim under a lease: claim(), claim_deferred(), claim_and_delete(), renew_many()
    - Settle: complete_many(); a claimed message has complete(), abandon(), reject() and defer()
    - Operate: cancel(), run_now(), release(), discard(), activate(); the last two also for many ids
      and for a queue: discard_many(), discard_queue(), activate_many(), activate_queue()
    - Delete: empty_queue(), prune_completed()
    - Inspect: peek(), browse(), find(), explain()
    """


class DeadLetterManager(DeadLetterVerbs[M]):
    """Inspect, redrive and purge dead letters: `DeadLetter.objects`.

    - Inspect: peek(), count_by_error()
    - Redrive: redrive() by id, redrive_queue() by queue, age, reason and error class,
      redrive_with() another body
    - Delete: purge() by id, purge_queue() by queue, age, reason and error class
    """

    def get_queryset(self) -> models.QuerySet[M]:
        return super().get_queryset().filter(state=State.DEAD_LETTERED)


class QueueManager(QueueVerbs[M]):
    """Create, configure and count queues: `Queue.objects`.

    - Configure: create_queue(), configure(), create_or_configure(), delete_queue(), and sync() for
      the queues declared in settings
    - Inspect: named(), stats(), stats_of(), overview()

    A single queue has pause() and resume().
    """


class SubscriptionManager(TopicVerbs[M]):
    """Subscribe queues to topics: `Subscription.objects`.

    - subscribe() creates a subscription and its queue, or replaces its filter
    - unsubscribe() deletes both

    Message.objects.publish() sends a message to the subscriptions of a topic.
    """


class ScheduleManager(ScheduleVerbs[M]):
    """List and control the project's recurring schedules: `Schedule.objects`.

    - Inspect: statuses(), status()
    - Control: pause(), resume(), run_now()

    A schedule is declared in MQLITE['SCHEDULES'] or with @periodic.
    """


class AccessKeyManager(KeyVerbs[M]):
    """Create, check and revoke the access keys of the HTTP broker: `AccessKey.objects`.

    - Create and end: create_key(), revoke()
    - Check: authenticate(); an access key has allows() and a status
    """
