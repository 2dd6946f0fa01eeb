"""Errors as projects write them, whose attributes and texts raise when somebody asks for them."""

from django_mqlite import Reject, Retry


class NoDelay(Retry):
    def __init__(self):
        pass


class NoReason(Reject):
    def __init__(self):
        pass


class DelayRaises(Retry):
    @property
    def delay(self):
        raise KeyboardInterrupt

    @delay.setter
    def delay(self, value):
        pass


class ReasonRaises(Reject):
    def __init__(self):
        pass

    @property
    def reason(self):
        raise SystemExit(3)


class TextRaises(Exception):
    def __str__(self):
        raise SystemExit(3)


class TextInterrupts(Exception):
    def __str__(self):
        raise KeyboardInterrupt


class ClassRaises(Exception):
    @property
    def __class__(self):
        raise RuntimeError("who asks?")


class EqualityRaises(Exception):
    def __eq__(self, other):
        raise RuntimeError("who compares?")

    __hash__ = None


class OddText(str):
    __slots__ = ()

    def replace(self, *arguments):
        raise RuntimeError("who replaces?")

    def __len__(self):
        raise RuntimeError("who measures?")


class TextOfAClassOfItsOwn(Exception):
    def __str__(self):
        return OddText("odd")


ODD_ERRORS = [
    NoDelay,
    NoReason,
    DelayRaises,
    ReasonRaises,
    TextRaises,
    TextInterrupts,
    ClassRaises,
    EqualityRaises,
    TextOfAClassOfItsOwn,
]
