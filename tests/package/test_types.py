"""The public names have types, with the plugin of django-stubs and without."""

import subprocess
import sys
from pathlib import Path

import pytest

USER = Path(__file__).with_name("typed_user.py")
STRICT = "[tool.mypy]\nstrict = true\nwarn_unused_ignores = true\n"
PLUGIN = (
    'plugins = ["mypy_django_plugin.main"]\n'
    '[tool.django-stubs]\ndjango_settings_module = "tests.settings"\n'
)


@pytest.mark.parametrize("more", [PLUGIN, ""], ids=["with plugin", "without plugin"])
def test_strict_mypy_accepts_use_and_reports_misuse(tmp_path, more):
    config = tmp_path / "pyproject.toml"
    config.write_text(STRICT + more)
    command = [sys.executable, "-m", "mypy", "--config-file", str(config), str(USER)]
    caches = ["--cache-dir", str(tmp_path / "cache")]

    process = subprocess.run(
        [*command, *caches], capture_output=True, text=True, timeout=110, check=False
    )

    assert process.returncode == 0, process.stdout + process.stderr
