"""An app whose handlers and tasks start processes, for tests with real workers.

A worker has it when it is started with `**FORKING`; the queues are made by the test.
"""

FORKING = {"DJANGO_SETTINGS_MODULE": "tests.support.forking_settings"}

QUEUES = ("fork", "fork-atomic", "fork-async", "fork-thread", "fork-to-thread", "stand-by")
