"""django-q2's own cluster with one worker on the ORM broker; tuned: a quick poll, bulk, WAL."""

import os
import subprocess
import sys
import time

directory, jobs, level = sys.argv[1], int(sys.argv[2]), sys.argv[3]
os.environ |= {
    "PEER_DIRECTORY": directory,
    "PEER_LEVEL": level,
    "PEER_APPS": "django_q",
    "DJANGO_SETTINGS_MODULE": "django_project",
    "PYTHONPATH": os.path.dirname(__file__),
}
import django
from django.core.management import call_command

django.setup()
call_command("migrate", verbosity=0)
from django_q.models import OrmQ
from django_q.tasks import async_task

for _ in range(jobs):
    async_task("django_project.noop", "x" * 256)
with subprocess.Popen(
    [sys.executable, "-m", "django", "qcluster"],
    stdout=subprocess.DEVNULL,
    stderr=subprocess.DEVNULL,
) as cluster:
    while (left := OrmQ.objects.count()) == jobs:  # until it has started
        time.sleep(0.005)
    began, first = time.perf_counter(), left
    while OrmQ.objects.exists():
        time.sleep(0.005)
    spent = time.perf_counter() - began
    cluster.terminate()
print(first / spent)
