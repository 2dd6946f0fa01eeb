"""django-tasks-db's own worker, in a batch; tuned: WAL, NORMAL, IMMEDIATE, kept connections."""

import os
import sys
import time

directory, jobs, level = sys.argv[1], int(sys.argv[2]), sys.argv[3]
os.environ |= {
    "PEER_DIRECTORY": directory,
    "PEER_LEVEL": level,
    "PEER_APPS": "django_tasks,django_tasks_db",
    "DJANGO_SETTINGS_MODULE": "django_project",
}
import django
from django.core.management import call_command

django.setup()
call_command("migrate", verbosity=0)
from django_jobs import noop

for _ in range(jobs):
    noop.enqueue("x" * 256)
began = time.perf_counter()
call_command("db_worker", batch=True, interval=0, verbosity=0)
print(jobs / (time.perf_counter() - began))
