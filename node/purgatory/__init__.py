"""Requests that wait for a condition: produces, fetches and deletions. Start with `purgatory.py`, which is pure."""
