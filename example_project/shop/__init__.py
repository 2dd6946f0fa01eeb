"""Orders, and the events they cause."""
