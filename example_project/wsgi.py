"""The shop as a WSGI application."""

import os

from django.contrib.staticfiles.handlers import StaticFilesHandler
from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "example_project.settings")

# The handler serves the admin's static files; in production, a web server does this.
application = StaticFilesHandler(get_wsgi_application())
