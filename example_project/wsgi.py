"""The shop as a WSGI application."""

import os

from django.contrib.staticfiles.handlers import StaticFilesHandler
from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "example_project.settings")

# The handler serves the admin's static files, which is a web server's work outside an example.
application = StaticFilesHandler(get_wsgi_application())
