"""Benchmarks of clusters: start, failover, leader moves, idle and slow brokers, and bad peers."""
