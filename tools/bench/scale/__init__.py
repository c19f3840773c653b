"""Benchmarks of clusters with many partitions. Start with `partitions.py`."""
