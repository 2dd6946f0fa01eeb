"""How a batch of leases is handed to a statement."""

import json
from collections.abc import Iterable

from ..types import Lease


def encode_leases(leases: Iterable[Lease]) -> str:
    """The JSON array of [id, token, queue] that statements read with json_each."""
    return json.dumps([(lease.message_id, lease.lock_token, lease.queue) for lease in leases])
