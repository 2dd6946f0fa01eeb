"""The queue in Django's admin: look into it, redrive and purge, pause and resume."""

from django.contrib import admin
from django.contrib.admin import AdminSite

from ..models import DeadLetter, Message, Queue, Subscription
from .dead_letters import DeadLetterAdmin
from .messages import MessageAdmin
from .queues import QueueAdmin
from .subscriptions import SubscriptionAdmin


def register(site: AdminSite) -> None:
    """Put the pages on an admin site of the project's own; on Django's they are already."""
    site.register(Queue, QueueAdmin)
    site.register(Message, MessageAdmin)
    site.register(DeadLetter, DeadLetterAdmin)
    site.register(Subscription, SubscriptionAdmin)


register(admin.site)
