"""Conversion of errors to a CommandError with one sentence."""

from collections.abc import Iterator
from contextlib import contextmanager

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import CommandError
from django.db import Error

from django_mqlite.exceptions import MqliteError
from django_mqlite.worker.database_errors import advice


@contextmanager
def as_command_error() -> Iterator[None]:
    """Turn what is expected to go wrong into a CommandError: exit code 1, no traceback."""
    try:
        yield
    except (MqliteError, ImproperlyConfigured) as error:
        raise CommandError(str(error)) from error
    except Error as error:
        raise CommandError(f"The database failed: {error} ({advice(error)}).") from error
