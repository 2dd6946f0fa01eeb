"""A small shop that demonstrates django-mqlite, with settings and code to copy."""
