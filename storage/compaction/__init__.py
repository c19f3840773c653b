"""Compaction: keeps the last record of each key.

Start with `cleaning_rules.py`, which decides which records may be removed. `cleaner.py` replaces the segments.
"""
