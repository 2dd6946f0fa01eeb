#!/usr/bin/env python
"""Django's command line for the shop: `python example_project/manage.py …`."""

import os
import sys
from pathlib import Path

from django.core.management import execute_from_command_line


def main() -> None:
    # Modules are found from the directory above, as with `python -m example_project.manage`.
    sys.path[0] = str(Path(__file__).resolve().parent.parent)
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "example_project.settings")
    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()
