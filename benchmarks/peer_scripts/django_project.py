"""A Django project for the peers that need one, and their job."""

import os
from datetime import timedelta

LEVEL = os.environ["PEER_LEVEL"]
TUNED = LEVEL != "default"
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": os.path.join(os.environ["PEER_DIRECTORY"], "peer.db"),
    }
}
if TUNED:
    DATABASES["default"] |= {
        "OPTIONS": {
            "transaction_mode": "IMMEDIATE",
            "timeout": 20,
            "init_command": f"PRAGMA journal_mode=WAL; PRAGMA synchronous={LEVEL}",
        },
        "CONN_MAX_AGE": None,
    }
INSTALLED_APPS = os.environ["PEER_APPS"].split(",")
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
SECRET_KEY = "not a secret"
USE_TZ = True

TASKS = {"default": {"BACKEND": os.environ["PEER_BACKEND"], "QUEUES": []}}
Q_CLUSTER = {"orm": "default", "workers": 1, "timeout": 60, "retry": 120}
if TUNED:
    Q_CLUSTER |= {"poll": 0.01, "bulk": 10, "save_limit": -1}
if "dj_queue" in INSTALLED_APPS:
    DATABASE_ROUTERS = ["dj_queue.routers.DjQueueRouter"]
    if TUNED:
        TASKS["default"]["OPTIONS"] = {"workers": [{"threads": 8, "polling_interval": 0.01}]}
if "steady_queue" in INSTALLED_APPS and TUNED:
    from steady_queue.configuration import Configuration

    STEADY_QUEUE = Configuration.Options(
        workers=[Configuration.Worker(threads=8, polling_interval=timedelta(seconds=0.01))]
    )

RAN = os.open(
    os.path.join(os.environ["PEER_DIRECTORY"], "ran"), os.O_WRONLY | os.O_APPEND | os.O_CREAT
)


def noop(body):
    """Write a byte for each job, so that the peer's database need not be queried."""
    os.write(RAN, b".")
