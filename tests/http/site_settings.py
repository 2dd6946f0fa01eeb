"""Settings of a project that serves the broker, with everything that could get in its way."""

from tests.support.worker_settings import *  # noqa: F403

DATABASES["default"]["ATOMIC_REQUESTS"] = True  # noqa: F405
INSTALLED_APPS = [
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    *INSTALLED_APPS,  # noqa: F405
]
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.auth.middleware.LoginRequiredMiddleware",
]
ALLOWED_HOSTS = ["*"]
APPEND_SLASH = True
DATA_UPLOAD_MAX_MEMORY_SIZE = 100
ROOT_URLCONF = "tests.http.site"
SESSION_ENGINE = "django.contrib.sessions.backends.signed_cookies"
