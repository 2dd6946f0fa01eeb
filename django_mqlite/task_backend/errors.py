"""What can go wrong with a task beyond its own code."""

from ..exceptions import MqliteError, Reject


class UnknownTask(MqliteError):
    """The path of a message names no task that this code has; older or newer code may have it."""

    def __init__(self, path: str, why: str) -> None:
        self.path = path
        self.why = why
        super().__init__(f"There is no task {path!r} in this code: {why}")


class ReturnValueRefused(Reject, TypeError):
    """The task has ended well, and what it returned cannot be kept. It is not run again."""

    def __init__(self, why: str) -> None:
        Reject.__init__(self, "ReturnValueRefused", why)
