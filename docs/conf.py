"""How the documentation is built: `make docs`. Every warning is an error there."""

import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE / "_ext"), str(HERE.parent)]
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "example_project.settings")

import django  # noqa: E402 - after the path

import django_mqlite  # noqa: E402 - after the path

django.setup()  # the reference is read from the models

project = "django-mqlite"
author = "the django-mqlite authors"
project_copyright = author
version = release = django_mqlite.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "statements"]
myst_heading_anchors = 3

# Docstrings write code in single backticks, like everything else here.
default_role = "code"
smartquotes = False  # a quote in SQL is one
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
python_display_short_literal_types = True
# Our own names must lead somewhere. Python's and Django's would need the network to be looked up.
nitpicky = True
# So would type variables, which are no documents.
nitpick_ignore_regex = [
    ("py:.*", r"(?!django_mqlite).*"),
    ("py:class", r"django_mqlite\..*\b[A-Z]"),
]

html_theme = "furo"
html_title = f"django-mqlite {release}"
html_copy_source = False
html_show_sphinx = False
html_theme_options = {"navigation_with_keys": True}

linkcheck_timeout = 20
linkcheck_ignore = [r"http://(127\.0\.0\.1|localhost)"]
