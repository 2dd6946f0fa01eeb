"""The supported pairs of Python and Django, Django's own engine, and a current SQLite.

`.ci/run` runs them so that each of these is met once, and not each with each; the current
SQLite is under what hangs on SQLite.
"""

import nox

nox.needs_version = ">=2026.2"
nox.options.default_venv_backend = "venv"

DJANGOS_ENGINE = {"MQLITE_TEST_ENGINE": "django.db.backends.sqlite3"}
CURRENT_SQLITE = {"MQLITE_TEST_CURRENT_SQLITE": "1"}
WHERE_SQL_RUNS = [
    *("tests/store", "tests/conformance", "tests/plans", "tests/migrations", "tests/engine"),
    *("tests/model", "tests/concurrency", "tests/crash"),
]

PAIRS = [("3.11", "5.2"), ("3.12", "6.0"), ("3.13", "6.1")]

# `make test` has built the package and followed the pages; no version of anything changes that.
NOT_AGAIN = ("--ignore=tests/package",)
NOT_BY_ENGINE = (*NOT_AGAIN, "--ignore=tests/browser", "--ignore=tests/docs")

# The model's rules do not depend on versions: a quarter of its examples shows that it runs on them.
FEWER = {"MQLITE_TEST_MODEL_EXAMPLES": "50"}
PYTEST = ("python", "-m", "pytest", "-n", "2", "--dist", "loadgroup")


@nox.session
@nox.parametrize(("python", "django"), PAIRS)
def tests(session: nox.Session, django: str) -> None:
    """The suite on one pair of Python and Django."""
    session.install("--editable", ".[dev,docs]", f"Django~={django}.0")
    session.run(*PYTEST, *NOT_AGAIN, *session.posargs, env=FEWER)


@nox.session(name="django-engine")
@nox.parametrize(("python", "django"), [("3.12", "6.0")])
def django_engine(session: nox.Session, django: str) -> None:
    """The suite on Django's own engine with `sqlite_options()`."""
    session.install("--editable", ".[dev,docs]", f"Django~={django}.0")
    session.run(*PYTEST, *NOT_BY_ENGINE, *session.posargs, env=FEWER | DJANGOS_ENGINE)


@nox.session(name="sqlite-current")
@nox.parametrize(("python", "django"), [("3.11", "5.2"), ("3.13", "6.1")])
def sqlite_current(session: nox.Session, django: str) -> None:
    """What hangs on SQLite, on the one that pysqlite3 brings along."""
    session.install("--editable", ".[dev,sqlite]", f"Django~={django}.0")
    session.run(*PYTEST, *(session.posargs or WHERE_SQL_RUNS), env=FEWER | CURRENT_SQLITE)


@nox.session(name="django-suite")
@nox.parametrize(("python", "django"), PAIRS)
def django_suite(session: nox.Session, django: str) -> None:
    """Django's own test suite on the engine; `-- --short --files` for a part of it on files."""
    session.install("--editable", ".", "tblib", f"Django~={django}.0")
    session.run("python", "-m", "tests.django_suite", *session.posargs)
