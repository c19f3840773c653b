"""Benchmarks of many partitions, brokers, members, groups and connections. Start with `partitions.py`.

`many_groups.py` also measures Kafka, and is declared among the comparisons of `tools/bench/kafka_clients`.
"""
