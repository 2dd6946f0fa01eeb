"""The verbs: transaction, time, signals."""
