"""A small shop that shows what django-mqlite does, in settings and code to copy from."""
