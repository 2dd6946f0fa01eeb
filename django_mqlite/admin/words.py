"""The names of states in the reader's language; in code, logs and JSON they stay as they are."""

from django.utils.translation import gettext_lazy as _

from ..types import State

STATES = {
    State.ACTIVE: _("active"),
    State.LOCKED: _("in flight"),
    State.DEFERRED: _("deferred"),
    State.SCHEDULED: _("scheduled"),
    State.COMPLETED: _("completed"),
    State.DEAD_LETTERED: _("dead letter"),
}
"""A locked message is one in flight: somebody has it at work."""
