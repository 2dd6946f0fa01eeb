"""The worker: how often, and how many."""
