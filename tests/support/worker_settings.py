"""Django settings of the worker processes that tests start."""

import json
import os
from importlib.util import find_spec

from django_mqlite.conf import sqlite_options
from tests.settings import ENGINE, OWN_ENGINE

OPTIONS = {
    "timeout": float(os.environ.get("MQLITE_TEST_TIMEOUT", "5")),
    "synchronous": os.environ.get("MQLITE_TEST_SYNCHRONOUS", "FULL"),
}
DATABASES = {
    "default": {
        "ENGINE": ENGINE,
        "NAME": os.environ["MQLITE_TEST_DATABASE"],
        "OPTIONS": OPTIONS if ENGINE == OWN_ENGINE else sqlite_options(**OPTIONS),
    }
}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
INSTALLED_APPS = ["django_mqlite", "tests.support.worker_app"]
if find_spec("django.tasks") is None:
    INSTALLED_APPS += ["django_tasks"]
SECRET_KEY = "not a secret"
SILENCED_SYSTEM_CHECKS = ["mqlite.W001"]
USE_TZ = True

# The queue "default" is declared nowhere else.
TASKS = {"default": {"BACKEND": "django_mqlite.task_backend.MqliteBackend"}}

MQLITE = {
    "QUEUES": {
        "jobs": {"backoff_base": 0},
        "more-jobs": {},
        "groups": {"ordering_mode": "group_fifo", "backoff_base": 0},
        "strict": {"ordering_mode": "strict_fifo", "backoff_base": 0},
        "atomic": {"backoff_base": 0},
        "async": {},
        "noop": {},
        "nobody": {},  # has no handler
    },
    **json.loads(os.environ.get("MQLITE_TEST_OPTIONS", "{}")),
}

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"plain": {"format": "%(levelname)s %(message)s"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "plain"}},
    "loggers": {"django_mqlite": {"handlers": ["stderr"], "level": "INFO"}},
}
