"""Errors as projects write them, whose attributes and texts raise when they are read."""

from django_mqlite import Reject, Retry


def raising(error):
    """Return a method that raises the error."""

    def method(*arguments):
        raise error

    return method


class NoDelay(Retry):
    def __init__(self):
        pass


class NoReason(Reject):
    def __init__(self):
        pass


class DelayRaises(NoDelay):
    delay = property(raising(KeyboardInterrupt))


class ReasonRaises(NoReason):
    reason = property(raising(SystemExit))


class TextRaises(Exception):
    __str__ = raising(SystemExit)


class TextInterrupts(Exception):
    __str__ = raising(KeyboardInterrupt)


class ClassRaises(Exception):
    __class__ = property(raising(RuntimeError))


class EqualityRaises(Exception):
    __eq__ = raising(RuntimeError)
    __hash__ = None


class OddText(str):
    __slots__ = ()
    replace = raising(RuntimeError)
    __len__ = raising(RuntimeError)


class TextOfItsOwnClass(Exception):
    def __str__(self):
        return OddText("odd")


ODD_ERRORS = [
    *(NoDelay, NoReason, DelayRaises, ReasonRaises, TextRaises, TextInterrupts),
    *(ClassRaises, EqualityRaises, TextOfItsOwnClass),
]
