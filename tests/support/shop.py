"""The example project as processes with a database of its own, and free ports for servers."""

import os
import socket
import subprocess
import sys
from pathlib import Path

from tests.support.source import ROOT
from tests.support.waiting import PATIENCE

MANAGE = ["-m", "example_project.manage"]


def migrated_shop(path: Path) -> dict[str, str]:
    """Migrate a database at `path`; return the environment for processes that use it."""
    environment = {**os.environ, "SHOP_DATABASE": str(path)}
    environment.pop("DJANGO_SETTINGS_MODULE", None)
    command = [sys.executable, *MANAGE, "migrate", "--verbosity=0"]
    subprocess.run(command, cwd=ROOT, env=environment, check=True, timeout=PATIENCE)
    return environment


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True
