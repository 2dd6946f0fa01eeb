"""Being admitted as the writer inside a transaction that somebody else began."""

from .statement import Connection, Statement, execute

# Changes nothing and takes the write lock, so that a time sampled afterwards is still the time
# when the next statement is judged by it.
ADMIT = Statement("admit", "UPDATE mqlite_meta SET value = value WHERE key IS NULL")


def admit(connection: Connection) -> None:
    """Wait for the write lock, in a transaction that may have begun deferred.

    Raises the database's OperationalError at once where the transaction has already read and
    another writer has committed since: only its owner can repeat it.
    """
    execute(connection, ADMIT)
