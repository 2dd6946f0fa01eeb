"""Every RPC of the broker by its path: mqlite's, then our own."""

from .additions import ADDITIONS
from .verbs import RPCS as MQLITE_RPCS

__all__ = ["MQLITE_RPCS", "RPCS"]

RPCS = {**MQLITE_RPCS, **ADDITIONS}
