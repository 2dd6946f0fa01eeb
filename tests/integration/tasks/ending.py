"""A module whose import raises an exception that `except Exception` does not catch."""


class TheEnd(BaseException):
    """Derives from BaseException only."""


raise TheEnd
