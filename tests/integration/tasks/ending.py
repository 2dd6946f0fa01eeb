"""A module whose import raises what no `except Exception` catches."""


class TheEnd(BaseException):
    """Of everything, it thinks."""


raise TheEnd
