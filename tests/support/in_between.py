"""A process between the test and a worker, as a shell is that does not become what it starts."""

import signal
import subprocess
import sys

if __name__ == "__main__":
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # ignored, it would say: outlive your parent
    sys.exit(subprocess.call([sys.executable, *sys.argv[1:]]))
