"""The worker: claims messages and runs their handlers."""
