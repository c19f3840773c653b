"""Benchmarks of records: produce, consume, latency and the two commands of `tidelog`."""
