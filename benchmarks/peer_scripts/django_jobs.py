"""The job of django-tasks-db, in a module of its own: it needs the settings."""

from django_tasks import task


@task()
def noop(body):
    """The job."""
