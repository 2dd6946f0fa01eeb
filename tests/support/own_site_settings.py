"""Settings of a project with its own user model and its own admin site."""

from tests.settings import *  # noqa: F403

AUTH_USER_MODEL = "own_site.Member"
ROOT_URLCONF = "tests.support.own_site.urls"
INSTALLED_APPS = [*INSTALLED_APPS, "tests.support.own_site"]  # noqa: F405
ALLOWED_HOSTS = ["testserver"]
