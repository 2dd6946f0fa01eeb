"""Wait for a file that a test creates."""

import time
from pathlib import Path

LONGEST_WAIT = 60.0


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + LONGEST_WAIT
    while not path.exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{path} did not appear")
        time.sleep(0.01)
