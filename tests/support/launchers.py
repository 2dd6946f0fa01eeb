"""Programs that start `python …` under a condition: `python -m tests.support.launchers NAME …`."""

import ctypes
import importlib
import json
import os
import signal
import subprocess
import sys

import pytest

PR_CAPBSET_DROP = 24
FILE_MODE_CAPABILITIES = {"CAP_DAC_OVERRIDE": 1, "CAP_DAC_READ_SEARCH": 2}

needs_file_modes = pytest.mark.skipif(
    sys.platform != "linux" and os.geteuid() == 0,
    reason="FILE MODES NOT TESTED: root ignores them, and only Linux can drop that capability",
)


def own_group(arguments: list[str]) -> None:
    """Become the program in a process group of its own."""
    os.setpgid(0, 0)
    os.execv(sys.executable, [sys.executable, *arguments])


def child(arguments: list[str]) -> None:
    """Run the program as a child, like a shell without `exec`."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # ignored, it would mean: outlive your parent
    sys.exit(subprocess.call([sys.executable, *arguments]))


def full_disk(arguments: list[str]) -> None:
    """Become the program, whose output cannot be written."""
    full = os.open("/dev/full", os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(full, stream)
    os.execv(sys.executable, [sys.executable, *arguments])


def file_modes(arguments: list[str]) -> None:
    """Become the program without root's capability to ignore file modes."""
    libc = ctypes.CDLL(None, use_errno=True)
    for name, capability in FILE_MODE_CAPABILITIES.items() if os.geteuid() == 0 else ():
        if libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), f"root cannot drop {name} here")
    os.execv(sys.executable, [sys.executable, *arguments])


def constants(arguments: list[str]) -> None:
    """Run `-m django …` with other constants of the worker's modules, but not in its children.

    The environment names them: {"module.NAME": value}.
    """
    import django  # noqa: PLC0415 - not in the other launchers
    from django.core.management import execute_from_command_line  # noqa: PLC0415

    django.setup()
    for path, value in json.loads(os.environ["MQLITE_TEST_CONSTANTS"]).items():
        module_name, _, name = path.partition(".")
        module = importlib.import_module(f"django_mqlite.worker.{module_name}")
        assert hasattr(module, name), path
        setattr(module, name, value)
    execute_from_command_line(arguments[1:])


LAUNCHERS = (own_group, child, full_disk, file_modes, constants)

if __name__ == "__main__":
    launch = {launcher.__name__: launcher for launcher in LAUNCHERS}
    launch[sys.argv[1]](sys.argv[2:])
