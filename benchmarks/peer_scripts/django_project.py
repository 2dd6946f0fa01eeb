"""A Django project for the peers that need one, and their job."""

import os

LEVEL = os.environ["PEER_LEVEL"]
TUNED = {
    "transaction_mode": "IMMEDIATE",
    "timeout": 20,
    "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL",
}
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": os.path.join(os.environ["PEER_DIRECTORY"], "peer.db"),
        "OPTIONS": TUNED if LEVEL == "tuned" else {},
        "CONN_MAX_AGE": None if LEVEL == "tuned" else 0,
    }
}
INSTALLED_APPS = os.environ["PEER_APPS"].split(",")
TASKS = {"default": {"BACKEND": "django_tasks_db.DatabaseBackend"}}
Q_CLUSTER = {"orm": "default", "workers": 1, "timeout": 60, "retry": 120} | (
    {"poll": 0.01, "bulk": 10, "save_limit": -1} if LEVEL == "tuned" else {}
)
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
SECRET_KEY = "not a secret"
USE_TZ = True


def noop(body):
    """The job."""
