"""Requests that wait: delayed produces, fetches and deletions. Start with `purgatory.py`, which is pure."""
