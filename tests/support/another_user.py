"""Call a function as another Unix user, from whom processes may be hidden."""

import ctypes
import os
import subprocess
import traceback
from collections.abc import Callable

import pytest

CLONE_NEWNS = 0x00020000
NOBODY = 65534
NOT_ALLOWED = 3


def result_as_another_user(function: Callable[[], bool], *, hidepid: int) -> bool:
    """Return what `function` returns in a process of that user, with /proc mounted so."""
    pid = os.fork()
    if pid == 0:
        _call_and_exit(function, hidepid)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if code == NOT_ALLOWED:
        pytest.skip("NOT TESTED: this container cannot mount /proc")
    assert code in (0, 1), "the function failed as the other user"
    return bool(code)


def _call_and_exit(function: Callable[[], bool], hidepid: int) -> None:
    code = 2
    try:
        if ctypes.CDLL(None).unshare(CLONE_NEWNS) != 0:
            os._exit(NOT_ALLOWED)
        _mount_proc(hidepid)
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
        code = int(function())
    except BaseException:  # noqa: BLE001 - the forked process must not go on as pytest
        traceback.print_exc()
    finally:
        os._exit(code)


def _mount_proc(hidepid: int) -> None:
    """Mount /proc for this process alone."""
    for command in (
        ["mount", "--make-rprivate", "/"],
        ["mount", "-t", "proc", "-o", f"hidepid={hidepid}", "proc", "/proc"],
    ):
        subprocess.run(command, check=True)
