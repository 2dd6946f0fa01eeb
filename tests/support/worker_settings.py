"""Django settings of the worker processes that tests start, adjusted by MQLITE_TEST_* variables."""

import json
import os
from importlib.util import find_spec

from django_mqlite.conf import sqlite_options
from django_mqlite.logs import MessageFilter
from tests.settings import ENGINE, OWN_ENGINE

_options = {
    "timeout": float(os.environ.get("MQLITE_TEST_TIMEOUT", "5")),
    "synchronous": os.environ.get("MQLITE_TEST_SYNCHRONOUS", "FULL"),
}
OPTIONS = _options if ENGINE == OWN_ENGINE else sqlite_options(**_options)
if "MQLITE_TEST_MAX_PAGES" in os.environ:
    limit = f"PRAGMA max_page_count={int(os.environ['MQLITE_TEST_MAX_PAGES'])}"
    OPTIONS["init_command"] = f"{OPTIONS.get('init_command', '')}; {limit}"
DATABASES = {
    "default": {
        "ENGINE": ENGINE,
        "NAME": os.environ["MQLITE_TEST_DATABASE"],
        "OPTIONS": OPTIONS,
    }
}
DEBUG = "MQLITE_TEST_DEBUG" in os.environ
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
        **{f"fork-{name}": {} for name in ("plain", "atomic", "async", "thread", "to-thread")},
        "stand-by": {},
        **{
            name: {"backoff_base": 0}
            for name in (
                *("holds", "stalls", "grow", "limited", "blocks", "says", "says-async"),
                *("noop-async", "opens", "wanders"),
            )
        },
    },
    **json.loads(os.environ.get("MQLITE_TEST_OPTIONS", "{}")),
}

if "MQLITE_TEST_NO_LOGGING" not in os.environ:
    LOGGING = {
        "version": 1,
        "disable_existing_loggers": False,
        "filters": {"mqlite": {"()": MessageFilter}},
        "formatters": {
            "plain": {"format": "%(levelname)s %(message)s"},
            "message": {"format": "shop %(queue)s#%(id)s %(message)s"},
        },
        "handlers": {
            "stderr": {"class": "logging.StreamHandler", "formatter": "plain"},
            "shop": {
                "class": "logging.StreamHandler",
                "formatter": "message",
                "filters": ["mqlite"],
            },
        },
        "loggers": {
            "django_mqlite": {"handlers": ["stderr"], "level": "INFO"},
            "shop": {"handlers": ["shop"], "level": "INFO"},
        },
    }
