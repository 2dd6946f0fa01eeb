"""Test sessions for the supported pairs of Python and Django, Django's engine and a current SQLite.

`.ci/run` tests each of them once, not all combinations. The current SQLite runs only the tests
that depend on SQLite.
"""

import nox

nox.needs_version = ">=2026.2"
nox.options.default_venv_backend = "venv"

DJANGOS_ENGINE = {"MQLITE_TEST_ENGINE": "django.db.backends.sqlite3"}
CURRENT_SQLITE = {"MQLITE_TEST_CURRENT_SQLITE": "1"}
SQLITE_TESTS = [
    *("tests/store", "tests/conformance", "tests/plans", "tests/migrations", "tests/engine"),
    *("tests/model", "tests/concurrency", "tests/crash"),
]

PAIRS = [("3.11", "5.2"), ("3.12", "6.0"), ("3.13", "6.1")]

# `make test` covers the package and the documentation, which do not depend on the versions.
WITHOUT_PACKAGE = ("--ignore=tests/package",)
ENGINE_INDEPENDENT = (*WITHOUT_PACKAGE, "--ignore=tests/browser", "--ignore=tests/docs")

# The rules of the model test do not depend on versions, so a quarter of its examples is enough.
FEWER_EXAMPLES = {"MQLITE_TEST_MODEL_EXAMPLES": "50"}
PYTEST = ("python", "-m", "pytest", "-n", "2", "--dist", "loadgroup")


@nox.session
@nox.parametrize(("python", "django"), PAIRS)
def tests(session: nox.Session, django: str) -> None:
    """Run the suite on one pair of Python and Django."""
    session.install("--editable", ".[dev,docs]", f"Django~={django}.0")
    session.run(*PYTEST, *WITHOUT_PACKAGE, *session.posargs, env=FEWER_EXAMPLES)


@nox.session(name="django-engine")
@nox.parametrize(("python", "django"), [("3.12", "6.0")])
def django_engine(session: nox.Session, django: str) -> None:
    """Run the suite on Django's own engine with `sqlite_options()`."""
    session.install("--editable", ".[dev,docs]", f"Django~={django}.0")
    session.run(*PYTEST, *ENGINE_INDEPENDENT, *session.posargs, env=FEWER_EXAMPLES | DJANGOS_ENGINE)


@nox.session(name="sqlite-current")
@nox.parametrize(("python", "django"), [("3.11", "5.2"), ("3.13", "6.1")])
def sqlite_current(session: nox.Session, django: str) -> None:
    """Run the tests that depend on SQLite with the version that pysqlite3 includes."""
    session.install("--editable", ".[dev,sqlite]", f"Django~={django}.0")
    session.run(*PYTEST, *(session.posargs or SQLITE_TESTS), env=FEWER_EXAMPLES | CURRENT_SQLITE)


@nox.session(name="django-suite")
@nox.parametrize(("python", "django"), PAIRS)
def django_suite(session: nox.Session, django: str) -> None:
    """Run Django's test suite on the engine; `-- --short --files` runs a part of it on files."""
    session.install("--editable", ".", "tblib", f"Django~={django}.0")
    session.run("python", "-m", "tests.django_suite", *session.posargs)
