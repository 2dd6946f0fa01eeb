"""Django settings of the test suite: one database file per test process, in a temporary directory.

A process that a test starts finds the same directory through the environment; it works on the
test's own database when the test hands it over in MQLITE_TEST_DATABASE.
"""

import os
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

from django_mqlite.conf import sqlite_options

OWN_ENGINE = "django_mqlite.sqlite3"
# Django's own in a lane of its own.
ENGINE = os.environ.get("MQLITE_TEST_ENGINE", OWN_ENGINE)

if "MQLITE_TEST_DIRECTORY" not in os.environ:
    # Kept in a name, because the directory goes when this object does.
    _directory = TemporaryDirectory(prefix="mqlite-tests-")
    os.environ["MQLITE_TEST_DIRECTORY"] = _directory.name

DIRECTORY = Path(os.environ["MQLITE_TEST_DIRECTORY"])

DATABASES = {
    "default": {
        "ENGINE": ENGINE,
        "NAME": os.environ.get("MQLITE_TEST_DATABASE", str(DIRECTORY / "db.sqlite3")),
        "OPTIONS": {} if ENGINE == OWN_ENGINE else sqlite_options(),
        # A file, or Django would test in memory. pytest-django adds the xdist worker's name to it.
        "TEST": {"NAME": str(DIRECTORY / "test.sqlite3")},
    }
}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    "django_mqlite",
]
if find_spec("django.tasks") is None:
    INSTALLED_APPS += ["django_tasks"]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    },
]

# Any queue: tests create their own.
TASKS = {"default": {"BACKEND": "django_mqlite.task_backend.MqliteBackend", "QUEUES": []}}

ROOT_URLCONF = "tests.urls"
SECRET_KEY = "not a secret"
STATIC_URL = "static/"
USE_TZ = True
# The real hashers are slow on purpose.
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
