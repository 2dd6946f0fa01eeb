"""An app whose handlers do what their message says, for tests with real workers."""
