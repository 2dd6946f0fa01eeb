"""A judgement as another Unix user comes to it, with processes hidden from users or not."""

import ctypes
import os
import subprocess
import traceback
from collections.abc import Callable

import pytest

CLONE_NEWNS = 0x00020000
NOBODY = 65534
NOT_ALLOWED = 3


def judged_by_another_user(judge: Callable[[], bool], *, hidepid: int) -> bool:
    """What `judge` returns in a forked process of that user, whose /proc is mounted so."""
    pid = os.fork()
    if pid == 0:
        _judge_and_exit(judge, hidepid)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if code == NOT_ALLOWED:
        pytest.skip("NOT TESTED: this container lets nobody mount /proc")
    assert code in (0, 1), "the other user could not judge"
    return bool(code)


def _judge_and_exit(judge: Callable[[], bool], hidepid: int) -> None:
    code = 2
    try:
        if ctypes.CDLL(None).unshare(CLONE_NEWNS) != 0:
            os._exit(NOT_ALLOWED)
        _mount_proc(hidepid)
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
        code = int(judge())
    except BaseException:  # noqa: BLE001 - the forked process must not go on as pytest
        traceback.print_exc()
    finally:
        os._exit(code)


def _mount_proc(hidepid: int) -> None:
    """For this process alone."""
    for command in (
        ["mount", "--make-rprivate", "/"],
        ["mount", "-t", "proc", "-o", f"hidepid={hidepid}", "proc", "/proc"],
    ):
        subprocess.run(command, check=True)
