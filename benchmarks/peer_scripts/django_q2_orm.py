"""django-q2's own cluster with one worker on the ORM broker; tuned: a short poll interval, bulk."""

from django_drain import jobs, print_rate, set_up

set_up("django_q")
from django.db import transaction
from django_q.tasks import async_task

with transaction.atomic():
    for _ in range(jobs):
        async_task("django_project.noop", "x" * 256)
print_rate("qcluster")
