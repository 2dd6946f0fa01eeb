"""django-ox's own worker; tuned: eight threads, a short poll interval."""

from django_drain import enqueue_tasks, level, print_rate, set_up

set_up("django_ox", "django_ox.backend.OxBackend")
enqueue_tasks()
print_rate("ox_worker", *([] if level == "default" else ["--concurrency=8", "--interval=0.01"]))
