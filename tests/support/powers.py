"""Taking root's power to pass over file modes away from a process.

`python -m tests.support.powers …` becomes `python …` without it.
"""

import ctypes
import os
import sys

import pytest

PR_CAPBSET_DROP = 24
CAP_DAC_OVERRIDE = 1
CAP_DAC_READ_SEARCH = 2

OBEYING_FILE_MODES = ("-m", "tests.support.powers")

needs_file_modes = pytest.mark.skipif(
    sys.platform != "linux" and os.geteuid() == 0,
    reason="FILE MODES NOT TESTED: root passes over them, and only Linux can take that power away",
)


def obey_file_modes() -> None:
    """For the programs that this process becomes. Who is not root obeys them anyway."""
    if os.geteuid() != 0:
        return
    libc = ctypes.CDLL(None, use_errno=True)
    for power in (CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH):
        if libc.prctl(PR_CAPBSET_DROP, power, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "root cannot give this power away here")


if __name__ == "__main__":
    obey_file_modes()
    os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
