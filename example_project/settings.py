"""Settings of the shop: first those for django-mqlite, then common Django settings."""

import os
from pathlib import Path

BASE_DIR = Path(__file__).resolve().parent

INSTALLED_APPS = [
    "example_project.shop",
    "django_mqlite",
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    "django.contrib.staticfiles",
]

DATABASES = {
    "default": {
        "ENGINE": "django_mqlite.sqlite3",
        "NAME": os.environ.get("SHOP_DATABASE", BASE_DIR / "shop.sqlite3"),
        "OPTIONS": {"timeout": 20},
        # A connection to SQLite does not go stale, and opening one for each request costs more
        # than most of its queries.
        "CONN_MAX_AGE": None,
    }
}

MQLITE = {
    "QUEUES": {
        "order-events": {
            # The events of one customer are handled one at a time, in order.
            "ordering_mode": "group_fifo",
            # The payment provider accepts eight requests at once, and two hundred a second.
            "max_in_flight": 8,
            "rate": "200/s",
            # Short, so that a message is soon delivered again after its worker is killed.
            "lock_duration": 5,
            "max_delivery_count": 3,
            "backoff_base": 0.2,
            # Completed messages stay in the admin for an hour; by default they are deleted.
            "retain_completed": 3600,
        },
        "reports": {"retain_completed": 24 * 3600},
    }
}

DEBUG = False
ALLOWED_HOSTS = ["127.0.0.1", "localhost"]
SECRET_KEY = "an example keeps no secrets"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
ROOT_URLCONF = "example_project.urls"
WSGI_APPLICATION = "example_project.wsgi.application"
STATIC_URL = "static/"
TIME_ZONE = "UTC"
USE_TZ = True

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"format": "{asctime} {name}: {message}", "style": "{"}},
    "handlers": {"console": {"class": "logging.StreamHandler", "formatter": "line"}},
    "root": {"handlers": ["console"], "level": "INFO"},
}

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
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
