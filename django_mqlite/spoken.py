"""Times and lengths of time as people say them, in the language and time zone in use."""

from django.utils.timezone import localtime
from django.utils.translation import gettext as _

from .fields import EPOCH, moment

SECOND, MINUTE, HOUR, DAY = 1_000, 60_000, 3_600_000, 86_400_000


def length(ms: int) -> str:
    """14 s, 3 min 20 s, 5 h 10 min, 12 d 3 h: two units at most, and never less than it says."""
    ms = abs(ms)
    if ms < MINUTE:
        return _("%(seconds)s s") % {"seconds": f"{ms / SECOND:.3g}"}
    if ms < HOUR:
        return _("%(minutes)d min %(seconds)d s") % {
            "minutes": ms // MINUTE,
            "seconds": ms % MINUTE // SECOND,
        }
    if ms < DAY:
        return _("%(hours)d h %(minutes)d min") % {
            "hours": ms // HOUR,
            "minutes": ms % HOUR // MINUTE,
        }
    return _("%(days)d d %(hours)d h") % {"days": ms // DAY, "hours": ms % DAY // HOUR}


def time_of(ms: int, *, now: int) -> str:
    """12:30:05 (in 14 s), 12:30:05 (9 s ago); with the date where that is not today's."""
    at, today = localtime(moment(ms) or EPOCH), localtime(moment(now) or EPOCH).date()
    said = f"{at:%H:%M:%S}" if at.date() == today else f"{at:%Y-%m-%d %H:%M:%S}"
    template = _("%(time)s (in %(length)s)") if ms > now else _("%(time)s (%(length)s ago)")
    return template % {"time": said, "length": length(ms - now)}
