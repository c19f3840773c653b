"""Invariants of records: none is lost, invented, duplicated or reordered, and look-ups return what the log holds."""
