"""A project with a custom admin site and user model."""

import os
import subprocess
import sys

from tests.support.source import ROOT


def test_pages_work_on_a_custom_site_with_a_custom_user_model(tmp_path):
    environment = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "tests.support.own_site_settings",
        "MQLITE_TEST_DATABASE": str(tmp_path / "own.sqlite3"),
    }

    tour = subprocess.run(
        [sys.executable, "-W", "error", "-m", "tests.support.own_site.tour"],
        cwd=ROOT,
        check=False,
        env=environment,
        capture_output=True,
        text=True,
    )

    assert tour.returncode == 0, tour.stderr
