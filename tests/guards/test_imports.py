"""A web process imports only what it needs: no worker, no command, and no library for them."""

import os
import subprocess
import sys

from tests.support.source import ROOT
from tests.support.waiting import PATIENCE

WEB_PROCESS = """
import sys
import django
django.setup()
from django.core.wsgi import get_wsgi_application
get_wsgi_application()
import django_mqlite.admin
from django_mqlite import enqueue, handler, periodic
from django_mqlite.models import Message, Queue
message = enqueue("jobs", {"order": 17}, delay=60)
assert Message.objects.cancel(message.pk)
assert Queue.objects.overview()
print(*sorted(sys.modules))
"""
FOR_WORKERS_AND_COMMANDS = (
    "django_mqlite.worker", "django_mqlite.management", "django_mqlite.http",
    "django_mqlite.testing", "django_mqlite.doctor", "psutil", "cronsim", "celpy", "msgspec",
    "uvicorn", "prometheus_client", "rich",
)  # fmt: skip


def test_web_process_imports_no_worker_and_no_library_for_it(database):
    database.queue("jobs")

    process = subprocess.run(
        [sys.executable, "-c", WEB_PROCESS],
        cwd=ROOT,
        env={**os.environ, **database.environment(), "DJANGO_SETTINGS_MODULE": "tests.settings"},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )

    imported = set(process.stdout.split())
    assert "django_mqlite.verbs.enqueue" in imported, process.stderr
    assert imported.intersection(FOR_WORKERS_AND_COMMANDS) == set()
