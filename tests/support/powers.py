"""Taking root's power to pass over file modes away from a process."""

import ctypes
import os
import sys

import pytest

PR_CAPBSET_DROP = 24
CAP_DAC_OVERRIDE = 1
CAP_DAC_READ_SEARCH = 2


def obey_file_modes() -> None:
    """For the process after its next exec. A user who is not root obeys them anyway."""
    if os.geteuid() == 0:
        libc = ctypes.CDLL(None, use_errno=True)
        for power in (CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH):
            if libc.prctl(PR_CAPBSET_DROP, power, 0, 0, 0) != 0:
                raise OSError(ctypes.get_errno(), "prctl(PR_CAPBSET_DROP)")


needs_file_modes = pytest.mark.skipif(
    sys.platform != "linux" and os.name == "posix" and os.geteuid() == 0,
    reason="FILE MODES NOT TESTED: root passes over them, and only Linux can take that power away",
)
