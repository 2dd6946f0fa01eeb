"""dj-queue's own runtime, one worker process; tuned: eight threads, a short poll interval."""

from django_drain import enqueue_tasks, print_rate, set_up

set_up("dj_queue", "dj_queue.backend.DjQueueBackend")
enqueue_tasks()
print_rate("dj_queue")
