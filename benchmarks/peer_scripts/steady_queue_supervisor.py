"""steady-queue's supervisor, one worker process; tuned: eight threads, a short poll interval."""

from django_drain import enqueue_tasks, print_rate, set_up

set_up("steady_queue,django.contrib.contenttypes", "steady_queue.backend.SteadyQueueBackend")
enqueue_tasks()
print_rate("steady_queue")
