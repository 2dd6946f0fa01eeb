"""The queue in Django's admin: inspect queues and messages, redrive and purge, pause and resume."""

from django.contrib import admin
from django.contrib.admin import AdminSite

from ..models import AccessKey, DeadLetter, Message, Queue, Schedule, Subscription
from .dead_letters import DeadLetterAdmin
from .keys import AccessKeyAdmin
from .messages import MessageAdmin
from .queues import QueueAdmin
from .schedules import ScheduleAdmin
from .subscriptions import SubscriptionAdmin


def register(site: AdminSite) -> None:
    """Register the pages on a custom admin site; the default site has them already."""
    site.register(Queue, QueueAdmin)
    site.register(Message, MessageAdmin)
    site.register(DeadLetter, DeadLetterAdmin)
    site.register(Subscription, SubscriptionAdmin)
    site.register(Schedule, ScheduleAdmin)
    site.register(AccessKey, AccessKeyAdmin)


register(admin.site)
