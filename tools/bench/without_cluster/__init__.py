"""Benchmarks that need no cluster: record format, storage, checker, and the copies that the hardware allows at best."""
