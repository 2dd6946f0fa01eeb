"""The test suite. Every process that runs a part of it imports this package first."""

from tests.support import current_sqlite

current_sqlite.install_if_requested()
