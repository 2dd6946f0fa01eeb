"""The queue in Django's admin: look into it, redrive and purge, pause and resume."""

from django.contrib import admin

from ..models import DeadLetter, Message, Queue
from .dead_letters import DeadLetterAdmin
from .messages import MessageAdmin
from .queues import QueueAdmin

admin.site.register(Queue, QueueAdmin)
admin.site.register(Message, MessageAdmin)
admin.site.register(DeadLetter, DeadLetterAdmin)
