"""An app whose handlers do what no handler should, for tests with real workers.

A worker has it when it is started with `**UNRULY`; the queues are made by the test.
"""

UNRULY = {"DJANGO_SETTINGS_MODULE": "tests.support.unruly_settings"}
