"""django-tasks-db's own worker; tuned: no pause between two polls."""

from django_drain import enqueue_tasks, level, print_rate, set_up

set_up("django_tasks,django_tasks_db", "django_tasks_db.DatabaseBackend")
enqueue_tasks()
print_rate("db_worker", *([] if level == "default" else ["--interval=0"]))
