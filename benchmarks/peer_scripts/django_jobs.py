"""The job as a task, in a separate module because it needs the settings."""

import django_project

try:
    from django.tasks import task
except ImportError:  # before Django 6.0
    from django_tasks import task


@task()
def noop(body):
    django_project.noop(body)
