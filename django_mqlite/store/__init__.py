"""SQL and invariants, one package per database."""
