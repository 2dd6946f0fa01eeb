"""Django settings of the benchmarks: one file in a temporary directory."""

import json
import os
from pathlib import Path
from tempfile import gettempdir

from django_mqlite.conf import sqlite_options

OWN_ENGINE = "django_mqlite.sqlite3"
ENGINE = os.environ.get("MQLITE_BENCHMARK_ENGINE", OWN_ENGINE)
DIRECTORY = Path(os.environ.get("MQLITE_BENCHMARK_DIRECTORY", gettempdir()))
SYNCHRONOUS = os.environ.get("MQLITE_BENCHMARK_SYNCHRONOUS", "FULL")

DATABASES = {
    "default": {
        "ENGINE": ENGINE,
        "NAME": str(DIRECTORY / "benchmark.sqlite3"),
        "OPTIONS": {"synchronous": SYNCHRONOUS}
        if ENGINE == OWN_ENGINE
        else sqlite_options(synchronous=SYNCHRONOUS),
    }
}
INSTALLED_APPS = [
    "django_mqlite",
    "benchmarks",
    # For the admin's pages.
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
]
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
ROOT_URLCONF = "benchmarks.urls"
ALLOWED_HOSTS = ["testserver"]
STATIC_URL = "static/"
TASKS = {"default": {"BACKEND": "django_mqlite.task_backend.MqliteBackend"}}
MQLITE = {"SCHEDULES": json.loads(os.environ.get("MQLITE_BENCHMARK_SCHEDULES", "{}"))}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
SECRET_KEY = "not a secret"
SILENCED_SYSTEM_CHECKS = ["mqlite.W001"]
USE_TZ = True
LOGGING = {"version": 1, "loggers": {"django_mqlite": {"level": "CRITICAL"}}}
