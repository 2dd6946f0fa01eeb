"""Those of the worker processes, with the handlers that do what no handler should."""

import os

from django_mqlite.logs import MessageFilter
from tests.support.worker_settings import *  # noqa: F403
from tests.support.worker_settings import DATABASES, INSTALLED_APPS, LOGGING, MQLITE

INSTALLED_APPS = [*INSTALLED_APPS, "tests.support.unruly_app"]
DEBUG = "MQLITE_TEST_DEBUG" in os.environ

MQLITE["QUEUES"] |= {
    name: {"backoff_base": 0}
    for name in (
        *("holds", "stalls", "grow", "limited", "blocks", "says", "says-async", "noop-async"),
        "leaves-open",
    )
}

if "MQLITE_TEST_MAX_PAGES" in os.environ:
    pages = int(os.environ["MQLITE_TEST_MAX_PAGES"])
    options = DATABASES["default"]["OPTIONS"]
    options["init_command"] = f"{options.get('init_command', '')}; PRAGMA max_page_count={pages}"

LOGGING["filters"] = {"mqlite": {"()": MessageFilter}}
LOGGING["formatters"]["message"] = {"format": "shop %(queue)s#%(id)s %(message)s"}
LOGGING["handlers"]["shop"] = {
    "class": "logging.StreamHandler",
    "formatter": "message",
    "filters": ["mqlite"],
}
LOGGING["loggers"]["shop"] = {"handlers": ["shop"], "level": "INFO"}
