"""The public names have types that help a user, with django-stubs' plugin and without."""

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


@pytest.mark.parametrize("more", [PLUGIN, ""], ids=["with the plugin", "without it"])
def test_a_strict_user_finds_what_is_returned_and_what_is_wrong(tmp_path, more):
    config = tmp_path / "pyproject.toml"
    config.write_text(STRICT + more)
    command = [sys.executable, "-m", "mypy", "--config-file", str(config), str(USER)]
    caches = ["--cache-dir", str(tmp_path / "cache")]

    checked = subprocess.run(
        [*command, *caches], capture_output=True, text=True, timeout=110, check=False
    )

    assert checked.returncode == 0, checked.stdout + checked.stderr
