"""`python -m tests.support.hasty -m django …` is `python -m django …` with a supervisor that waits
for nothing: its rests are as short as the environment says."""

import json
import os
import sys

if __name__ == "__main__":
    import django
    from django.core.management import execute_from_command_line

    django.setup()
    from django_mqlite.worker import supervisor

    for name, value in json.loads(os.environ["MQLITE_TEST_SUPERVISOR"]).items():
        assert hasattr(supervisor, name), name
        setattr(supervisor, name, value)
    execute_from_command_line(sys.argv[2:])
