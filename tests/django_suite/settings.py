"""Settings for Django's test suite: its own for SQLite, with this engine.

The databases are in memory, as Django's are, or files in MQLITE_DJANGO_SUITE_FILES.
"""

import os
from pathlib import Path

import django
from django.db.backends.sqlite3.base import DatabaseFeatures
from django.utils.functional import cached_property
from test_sqlite import *  # noqa: F403 - beside Django's runtests.py

TEST_RUNNER = "tests.django_suite.runner.CountingRunner"

DATABASES = {
    alias: {"ENGINE": "django_mqlite.sqlite3", "TEST": {}} for alias in ("default", "other")
}
if directory := os.environ.get("MQLITE_DJANGO_SUITE_FILES"):
    for alias, database in DATABASES.items():
        database["TEST"] = {"NAME": str(Path(directory) / f"{alias}.sqlite3")}

EXPECTED_FAILURES = {
    # Both look for "BEGIN" among the logged queries, and the engine begins with "BEGIN IMMEDIATE".
    "backends.base.test_base.DatabaseWrapperLoggingTests.test_commit_debug_log",
    "backends.sqlite.tests.TestTransactionMode.test_default_transaction_mode",
}
NOT_FOR_ROOT = {
    "file_uploads.tests.DirectoryCreationTests.test_readonly_root",
    "i18n.test_compilation.PoFileTests.test_no_write_access",
    "template_tests.test_loaders.FileSystemLoaderTests.test_permissions_error",
}
if django.VERSION >= (6, 0):
    NOT_FOR_ROOT.add(
        "admin_scripts.tests.StartApp.test_custom_app_directory_creation_error_handling"
    )
if django.VERSION >= (6, 1):
    NOT_FOR_ROOT |= {
        "mail.test_backends.FileBackendPathLibTests.test_error_if_file_path_is_not_writable",
        "mail.test_backends.FileBackendTests.test_error_if_file_path_is_not_writable",
    }
SKIPPED = {}
if os.geteuid() == 0:
    SKIPPED["Root may read and write everything."] = NOT_FOR_ROOT
SIGNATURES = "backends.sqlite.test_creation.TestDbSignatureTests"
if django.VERSION >= (6, 1):
    # Skipped, because it would also close the connection of the tests that come after it.
    SKIPPED["The engine's processes work on their clone, Django's on a copy of it in memory."] = {
        f"{SIGNATURES}.test_setup_worker_connection_respects_test_database_name"
    }

# Django marks its own tests with these, in every process. An expected failure that passes fails.
djangos_skips = DatabaseFeatures.django_test_skips.func
skips = cached_property(lambda features: {**djangos_skips(features), **SKIPPED})
skips.__set_name__(DatabaseFeatures, "django_test_skips")
DatabaseFeatures.django_test_skips = skips
DatabaseFeatures.django_test_expected_failures = {
    *DatabaseFeatures.django_test_expected_failures,
    *EXPECTED_FAILURES,
}
