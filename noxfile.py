"""The supported pairs of Python and Django, and a current SQLite; `.ci/run` runs them."""

import nox

nox.needs_version = ">=2026.2"
nox.options.default_venv_backend = "venv"

# The model's rules do not depend on versions: a quarter of its examples shows that it runs on them.
FEWER = {"MQLITE_TEST_MODEL_EXAMPLES": "50"}
PYTEST = ("python", "-m", "pytest", "-n", "2", "--dist", "loadgroup")


@nox.session
@nox.parametrize(("python", "django"), [("3.11", "5.2"), ("3.12", "6.0"), ("3.13", "6.1")])
def tests(session: nox.Session, django: str) -> None:
    """The whole suite on one pair of Python and Django."""
    session.install("--editable", ".[dev]", f"Django~={django}.0")
    session.run(*PYTEST, *session.posargs, env=FEWER)


# Django 5.2 only: from 6.0 on Django calls Connection.getlimit(), which pysqlite3 0.6 lacks.
@nox.session(name="sqlite-current")
def sqlite_current(session: nox.Session) -> None:
    """The whole suite on the SQLite that pysqlite3 brings along."""
    session.install("--editable", ".[dev,sqlite]", "Django~=5.2.0")
    session.run(*PYTEST, *session.posargs, env={"MQLITE_TEST_CURRENT_SQLITE": "1"})
