"""The main job under fire: `python -m example_project.demo`."""
