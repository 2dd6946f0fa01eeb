"""The example project with a database of its own, for its real processes."""

import os
import subprocess
import sys
from pathlib import Path

from tests.support.source import ROOT
from tests.support.waiting import PATIENCE

MANAGE = ["-m", "example_project.manage"]


def migrated_shop(path: Path) -> dict[str, str]:
    """The environment for processes of the shop whose database, with its tables, is at `path`."""
    environment = {**os.environ, "SHOP_DATABASE": str(path)}
    environment.pop("DJANGO_SETTINGS_MODULE", None)
    command = [sys.executable, *MANAGE, "migrate", "--verbosity=0"]
    subprocess.run(command, cwd=ROOT, env=environment, check=True, timeout=PATIENCE)
    return environment
