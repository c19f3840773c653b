"""The invariants of the checker, one file for each kind of promise."""
