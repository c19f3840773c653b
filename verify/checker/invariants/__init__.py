"""The invariants of the checker, one module per kind."""
