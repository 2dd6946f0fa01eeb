"""Why has this message not run? What the answer needs is read here; it is in reasons, or gone."""

from typing import Any

from . import clock
from .gone import Gone, reason_for_gone
from .handlers import get_handlers, queues_of_kinds
from .reasons import Surroundings, reason_for
from .store import explain as store
from .types import Explanation, State, clamped
from .workers import registered_workers


def explain(connection: Any, id: int) -> Explanation:
    """Why the message has not run, what holds it, or what became of it. Reads only."""
    message = store.situation(connection, clamped(id))
    if message is None:
        return reason_for_gone(id, _gone(connection, clamped(id)))
    return reason_for(message, _surroundings(connection, message))


def _surroundings(connection: Any, message: store.Situation) -> Surroundings:
    workers = tuple(registered_workers(connection.alias))
    around = Surroundings(now=clock.now_ms(), workers=workers)
    if message.blocked:
        return around.behind(_head(connection, message))
    if message.state != State.ACTIVE:
        return around
    if not around.workers_of(message.queue):
        return around.without_worker(has_handler=_has_handler(message.queue))
    return around.in_line(store.ahead(connection, message))


def _has_handler(queue: str) -> bool:
    """Whether something handles it; so it is taken to be where the handlers cannot be imported.

    Why not is what the worker then says that is started. Who asks here still needs an answer.
    """
    try:
        return queue in {*get_handlers(), *queues_of_kinds()}
    except Exception:  # noqa: BLE001 - whatever modules of the project do when they are imported
        return True


def _head(connection: Any, message: store.Situation) -> Explanation | None:
    """Why the head of its line waits; None if it has gone since the message was looked at."""
    head = store.head_of_line(connection, message.queue, message.line or "")
    return None if head is None else explain(connection, head)


def _gone(connection: Any, id: int) -> Gone:
    before, after = store.neighbours(connection, id)
    return Gone(
        now=clock.now_ms(),
        newest_id=store.newest_id(connection),
        settlement=store.last_settlement(connection, id),
        after=before,
        before=after,
    )
