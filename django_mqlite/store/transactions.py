"""The write lock: begin a transaction with it, or acquire it in one that is open."""

from .statement import Connection, Statement, execute

BEGIN = Statement("begin", "BEGIN IMMEDIATE")


def begin(connection: Connection) -> None:
    """Wait for the write lock and begin a transaction with it."""
    execute(connection, BEGIN)


# Changes nothing and takes the write lock, so that a time sampled afterwards is still the time
# when the next statement is judged by it.
ADMIT = Statement("admit", "UPDATE mqlite_meta SET value = value WHERE key IS NULL")


def admit(connection: Connection) -> None:
    """Wait for the write lock, in a transaction that may have begun deferred.

    Raises the database's OperationalError at once where the transaction has already read and
    another writer has committed since: only its owner can repeat it.
    """
    execute(connection, ADMIT)
