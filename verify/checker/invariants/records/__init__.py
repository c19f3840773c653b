"""Invariants of records: none is lost, invented, doubled or reordered, and look-ups answer what the log holds."""
