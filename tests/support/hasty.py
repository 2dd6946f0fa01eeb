"""`python -m tests.support.hasty -m django …` is `python -m django …` with less patience.

The constants of the worker's modules are those that the environment names: {"module.NAME": value}.
"""

import importlib
import json
import os
import sys

if __name__ == "__main__":  # not in the children of this process
    import django
    from django.core.management import execute_from_command_line

    django.setup()
    for path, value in json.loads(os.environ["MQLITE_TEST_CONSTANTS"]).items():
        module, _, name = path.partition(".")
        found = importlib.import_module(f"django_mqlite.worker.{module}")
        assert hasattr(found, name), path
        setattr(found, name, value)
    execute_from_command_line(sys.argv[2:])
