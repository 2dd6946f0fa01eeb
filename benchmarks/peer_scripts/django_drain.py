"""Shared code of the Django peers: a project, its tasks, and a timed worker."""

import os
import subprocess
import sys
import time

STALL_TIMEOUT = 20.0
"""Seconds without a finished job after which the run is aborted."""

directory, jobs, level = sys.argv[1], int(sys.argv[2]), sys.argv[3]


def set_up(apps, backend=""):
    """Create the tables of the project."""
    os.environ |= {
        "PEER_DIRECTORY": directory,
        "PEER_LEVEL": level,
        "PEER_APPS": apps,
        "PEER_BACKEND": backend,
        "DJANGO_SETTINGS_MODULE": "django_project",
        "PYTHONPATH": os.path.dirname(__file__),
    }
    import django
    from django.core.management import call_command

    django.setup()
    call_command("migrate", verbosity=0)


def enqueue_tasks():
    """Enqueue all tasks in one commit, because only the worker is timed."""
    from django.db import transaction
    from django_jobs import noop

    with transaction.atomic():
        for _ in range(jobs):
            noop.enqueue("x" * 256)


def print_rate(*command):
    """Run the worker; print jobs per second to standard output and its log to stderr."""
    with open(f"{directory}/log", "wb") as log:
        worker = subprocess.Popen(
            [sys.executable, "-m", "django", *command],
            stdout=log,
            stderr=log,
        )
        try:
            first = wait_until(1)
            started = time.perf_counter()
            wait_until(jobs)
            spent = time.perf_counter() - started
        finally:
            end(worker)
            with open(f"{directory}/log", errors="replace") as written:
                sys.stderr.write(written.read())
    print((jobs - first) / spent)


def wait_until(count):
    """Wait until `count` jobs have run; return their number."""
    changed_at = time.monotonic()
    last_count = 0
    while (ran := os.path.getsize(f"{directory}/ran")) < count:
        if ran > last_count:
            last_count, changed_at = ran, time.monotonic()
        if time.monotonic() - changed_at > STALL_TIMEOUT:
            raise SystemExit(f"only {ran} of {jobs} jobs have run")
        time.sleep(0.002)
    return ran


def end(worker):
    """Terminate the worker, then kill it; the caller of the script kills its children."""
    worker.terminate()
    try:
        worker.wait(10)
    except subprocess.TimeoutExpired:
        worker.kill()
        worker.wait()
