"""Whether somebody else has committed since the last look."""

from typing import Any


def data_version(driver: Any) -> int:
    """A number that changes when another connection commits to the file; own commits do not count.

    Asked of the driver's connection itself, and not through Django's cursor: an idle worker asks
    ten times a second, which the wrappers would make twice as dear and write into the query log.
    """
    ((version,),) = driver.execute("PRAGMA data_version").fetchall()
    return int(version)
