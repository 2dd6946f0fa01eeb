"""The client: send, receive with long polls, and work."""

import os
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from functools import partial
from secrets import token_hex
from threading import Event
from typing import Any, Self

from ..timing import Duration, epoch_ms, milliseconds
from .errors import BrokerError
from .messages import Outgoing, Received
from .transport import Transport
from .worker import POLL, Worker

LONGEST_WAIT = 20.0
"""Seconds of one long poll; receive() makes several for a longer time."""
LARGEST_BATCH = 256


class Client:
    """A client of one broker. Threads may share it.

    `url` and `key` are by default the environment variables MQLITE_ENDPOINT and MQLITE_TOKEN.
    Requests that fail because the broker cannot be reached or is not available are repeated for
    `retry_for` seconds, if that is safe.
    """

    def __init__(
        self, url: str = "", key: str = "", *, retry_for: float = 60.0, connections: int = 16
    ) -> None:
        url = url or os.environ.get("MQLITE_ENDPOINT", "")
        if not url.startswith(("http://", "https://")):
            raise ValueError(
                f"Invalid address of a broker {url!r}: pass a URL such as "
                "http://127.0.0.1:6754, or set MQLITE_ENDPOINT."
            )
        key = key or os.environ.get("MQLITE_TOKEN", "")
        self.transport = Transport(url, key, retry_for=retry_for, connections=connections)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the idle connections."""
        self.transport.close()

    def send(
        self,
        queue: str,
        data: Any,
        *,
        delay: Duration | None = None,
        visible_at: datetime | None = None,
        ttl: Duration | None = None,
        **options: Any,
    ) -> int:
        """Send a message to a queue or a topic and return its sequence number.

        `options` are those of Outgoing. Of a topic, the number is that of one copy; 0 if no
        subscription wanted the message. Raises OutcomeUnknown if the connection broke meanwhile and
        the message has no `message_id`; with one, the request is repeated.
        """
        message = Outgoing(data=data, **options)
        (number,) = self.send_many(queue, [message], delay=delay, visible_at=visible_at, ttl=ttl)
        return number

    def send_many(
        self,
        queue: str,
        messages: Iterable[Outgoing],
        *,
        delay: Duration | None = None,
        visible_at: datetime | None = None,
        ttl: Duration | None = None,
    ) -> list[int]:
        """Send messages, all or none, and return their sequence numbers in order.

        A message whose `message_id` was used for other data has the number 0. Raises as send().
        """
        if delay is not None and visible_at is not None:
            raise ValueError("Pass either delay or visible_at, not both.")
        outgoing = list(messages)
        request = {
            "queue": queue,
            "messages": [message.document() for message in outgoing],
            "scheduled_enqueue_time_ms": self._due_at(delay, visible_at),
            "ttl_ms": 0 if ttl is None else milliseconds(ttl, "ttl", minimum=1),
        }
        repeat = all(message.message_id for message in outgoing)
        answer = self.transport.call("QueueService", "Send", request, repeat=repeat)
        return list(answer["seq_numbers"] or ())

    def _due_at(self, delay: Duration | None, visible_at: datetime | None) -> int:
        if visible_at is not None:
            return epoch_ms(visible_at)
        delay_ms = 0 if delay is None else milliseconds(delay, "delay")
        return self.transport.now_ms() + delay_ms if delay_ms else 0

    def receive(self, queue: str, *, limit: int = 1, wait: float = LONGEST_WAIT) -> list[Received]:
        """Receive up to `limit` messages under leases; [] if there is none for `wait` seconds.

        Each request has an attempt id, so that a message is not lost for the time of its lease if
        the answer does not arrive: the repeated request gets the same messages.
        """
        ends_at = time.monotonic() + wait
        while True:
            seconds = min(max(ends_at - time.monotonic(), 0.0), LONGEST_WAIT)
            messages = self._receive(queue, limit, seconds)
            if messages or time.monotonic() >= ends_at:
                return messages

    def _receive(self, queue: str, limit: int, seconds: float) -> list[Received]:
        request = {
            "queue": queue,
            "max_messages": min(limit, LARGEST_BATCH),
            "wait_time_ms": int(seconds * 1000),
            "receive_attempt_id": token_hex(16),
        }
        answer = self.transport.call("QueueService", "Receive", request, repeat=True, wait=seconds)
        return [Received.of(document, queue, self.transport) for document in answer["messages"]]

    def renew_many(self, messages: Iterable[Received]) -> list[bool]:
        """Renew the leases of messages of one queue; return which still had one."""
        held = list(messages)
        if not held:
            return []
        request = {
            "queue": held[0].queue,
            "messages": [
                {"seq_number": message.id, "lock_token": message.lock_token} for message in held
            ],
        }
        answer = self.transport.call("QueueService", "RenewBatch", request, repeat=True)
        return [bool(result["ok"]) for result in answer["results"]]

    def work(
        self,
        queue: str,
        handler: Callable[[Received], object],
        *,
        threads: int = 1,
        stop: Event | None = None,
    ) -> None:
        """Receive messages and run `handler` for each, until `stop` is set or Ctrl-C is pressed.

        Leases are renewed while the handler runs. A message is completed when the handler returns,
        and delivered again if it raises; Retry(delay=…) chooses the delay, and Reject makes it a
        dead letter. Running handlers finish before the call returns.

        Raises Unreachable if the broker cannot be reached for `retry_for` seconds, and BrokerError
        if it refuses to deliver, for example because the queue does not exist.
        """
        Worker(
            handler,
            receive=partial(self.receive, queue, wait=POLL),
            renew=self.renew_many,
            threads=threads,
            stop=stop or Event(),
        ).run()

    def stats(self, queue: str) -> Mapping[str, int]:
        """Return the number of messages of a queue by state, and the age of the oldest."""
        answer = self.transport.call("QueueService", "Stats", {"queue": queue}, repeat=True)
        return {name: value for name, value in answer.items() if name != "queue"}

    def cancel(self, queue: str, id: int) -> bool:
        """Delete a scheduled message that was never delivered; return False if there is none.

        False is also the answer if a repeated request finds the message deleted by the first.
        """
        request = {"queue": queue, "seq_number": id}
        try:
            self.transport.call("QueueService", "Cancel", request, repeat=True)
        except BrokerError as error:
            if error.code != "not_found":
                raise
            return False
        return True
