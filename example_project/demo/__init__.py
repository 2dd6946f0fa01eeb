"""A demo with failures: `python -m example_project.demo`."""
