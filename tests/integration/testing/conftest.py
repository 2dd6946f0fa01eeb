"""drain() and a worker, which must end a delivery in the same way."""

from functools import partial

import pytest

from django_mqlite import handlers
from django_mqlite.testing import drain
from tests.support.steps import work

COMMITTED = pytest.mark.django_db(transaction=True)
WORKER = pytest.param(work, id="worker", marks=COMMITTED)
drain_default = partial(drain, "default")
DRAINS = [
    pytest.param(drain_default, id="drain", marks=COMMITTED),
    pytest.param(drain_default, id="drain in TestCase", marks=pytest.mark.django_db),
]


@pytest.fixture(autouse=True)
def no_handlers(monkeypatch):
    monkeypatch.setattr(handlers, "_handlers", {})
