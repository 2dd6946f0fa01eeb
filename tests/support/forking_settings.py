"""Those of the worker processes, with the handlers that start processes."""

from tests.support.forking_app import QUEUES
from tests.support.worker_settings import *  # noqa: F403
from tests.support.worker_settings import INSTALLED_APPS, MQLITE

INSTALLED_APPS = [*INSTALLED_APPS, "tests.support.forking_app"]

MQLITE["QUEUES"] |= {queue: {} for queue in QUEUES}
