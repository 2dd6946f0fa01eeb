"""Those of the worker processes, in a project that says nothing about its logs."""

from tests.support.worker_settings import *  # noqa: F403

del LOGGING  # noqa: F821
