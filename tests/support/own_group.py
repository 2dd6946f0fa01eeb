"""`python -m tests.support.own_group …` becomes `python …` in a process group of its own."""

import os
import sys

if __name__ == "__main__":
    os.setpgid(0, 0)
    os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
