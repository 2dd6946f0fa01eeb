"""The pytest plugin is loaded in every project, also where there is no Django."""

import subprocess
import sys


def test_it_imports_without_settings_and_imports_no_models():
    code = (
        "import sys; import django_mqlite.pytest_plugin; "
        "print('django_mqlite.models' in sys.modules, 'django_mqlite.testing' in sys.modules)"
    )

    done = subprocess.run(
        [sys.executable, "-c", code], env={}, capture_output=True, text=True, check=True
    )

    assert done.stdout.split() == ["False", "False"]


def test_a_project_without_django_is_left_in_peace(tmp_path):
    (tmp_path / "test_plain.py").write_text("def test_plain():\n    assert True\n")

    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:django", "-p", "no:cacheprovider"],
        cwd=tmp_path,
        env={},
        capture_output=True,
        text=True,
        check=False,
    )

    assert "1 passed" in done.stdout, done.stdout + done.stderr
