"""What must be true before a worker starts; better said at the start than in the middle."""

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet

from django.db import Error, connections

from ..exceptions import MqliteError, QueueNotFound
from ..handlers import Handler, queues_of_kinds
from ..models import Queue
from ..schema import check_schema, schema_differences
from ..store.transactions import admit
from ..transactions import write_transaction
from .faults import advice


class NotReady(MqliteError):
    """The worker cannot start; the message says what to do."""


def check_writable(using: str) -> None:
    """Acquire the write lock once, so that a read-only or locked database fails at startup.

    So does one whose tables are not as their migrations created them: without its triggers an
    ordered message is stored and never delivered.
    """
    try:
        check_schema(connections[using])
        with write_transaction(using) as connection:
            admit(connection)  # on a read-only file BEGIN IMMEDIATE alone says nothing
            differences = schema_differences(connection)
    except Error as error:
        raise NotReady(f"Database {using!r} cannot be used: {error}; {advice(error)}.") from error
    if differences:
        raise NotReady(
            f"The queue's tables in database {using!r} are not as their migrations created them: "
            f"{'; '.join(differences)}. Restore a backup, or create what is missing: "
            "`manage.py mqlite doctor` says how."
        )


def served_queues(
    using: str, handlers: Mapping[str, Handler], wanted: Sequence[str], excluded: Sequence[str]
) -> tuple[str, ...]:
    """The queues to serve, in order: those named, or all that have a handler or a tasks backend.

    `*` among the names stands for all of these that are not named.

    Raises NotReady for a queue that is not there or that nothing would handle.
    """
    known = set(Queue.objects.db_manager(using).values_list("name", flat=True))
    handled = handlers.keys() | queues_of_kinds()
    queues = tuple(queue for queue in _all_wanted(handled, wanted) if queue not in excluded)
    for queue in [*queues, *excluded]:
        if queue not in known:
            raise NotReady(str(QueueNotFound(queue, known)))
    for queue in queues:
        if queue not in handled:
            raise NotReady(
                f"Queue {queue!r} has no handler. Write one with @handler({queue!r}) in the "
                "`handlers` module of an installed app or one of MQLITE['HANDLERS'], name the "
                "queue in the QUEUES of a tasks backend in TASKS, or leave it out."
            )
    if not queues:
        raise NotReady(
            "There is nothing to serve: no handler is registered for any queue that is left. "
            "Write one with @handler('queue') in the `handlers` module of an installed app or one "
            "of MQLITE['HANDLERS']."
        )
    return queues


def _all_wanted(handled: AbstractSet[str], wanted: Sequence[str]) -> Iterator[str]:
    for queue in wanted or ["*"]:
        if queue == "*":
            yield from sorted(handled - set(wanted))
        else:
            yield queue
