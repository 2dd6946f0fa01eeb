"""Django's own test suite, run on the engine: `python -m tests.django_suite --help`."""
