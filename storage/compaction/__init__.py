"""Compaction: keeps the last record of each key.

Start with `cleaning_rules.py`, which decides what may go. `cleaner.py` replaces the segments.
"""
