"""The pytest plugin, which is loaded in every project, with Django or without."""

import subprocess
import sys


def run_python(*arguments, **options):
    process = subprocess.run(
        [sys.executable, *arguments], env={}, capture_output=True, text=True, check=False, **options
    )
    assert process.returncode == 0, process.stdout + process.stderr
    return process.stdout


def test_plugin_imports_no_models_and_needs_no_settings():
    output = run_python(
        "-c",
        "import sys; import django_mqlite.pytest_plugin; "
        "print('django_mqlite.models' in sys.modules, 'django_mqlite.testing' in sys.modules)",
    )

    assert output.split() == ["False", "False"]


def test_plugin_has_no_effect_on_a_project_without_django(tmp_path):
    (tmp_path / "test_plain.py").write_text("def test_plain():\n    assert True\n")

    output = run_python(
        *("-m", "pytest", "-q", "-p", "no:django", "-p", "no:cacheprovider"), cwd=tmp_path
    )

    assert "1 passed" in output
