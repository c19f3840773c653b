"""Benchmarks of look-ups by time, commits and groups."""
